"""A suite that was started in the background ignores Ctrl-C, and so would every program that its tests start."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

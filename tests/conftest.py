"""What every test stands on."""

import atexit
import os
import shutil
import signal
import tempfile

# A suite that was started in the background ignores Ctrl-C, and so would every program that its tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What code the tests run must not become known to the person who runs them, nor that person's to the tests.
os.environ["XDG_CONFIG_HOME"] = tempfile.mkdtemp(prefix="semifl-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_CONFIG_HOME"], ignore_errors=True)

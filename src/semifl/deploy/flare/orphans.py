"""A job's process ends with the process that started it: FLARE would let it train on for nobody it can be told from."""

from __future__ import annotations

import os
import threading
import time

LOOK = 1.0  # seconds between two looks at the parent


def end_with_parent() -> None:
    """From now on, end this process as soon as its parent has died."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(LOOK)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

"""The README's Python example on idle cores, and beside two processes that keep the cores busy."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from measure import report

README = Path(__file__).resolve().parent.parent / "README.md"
SPIN = "while True: pass"
REPEATS = 3


def example() -> str:
    """Return the block below "From Python", as a reader would copy it."""
    found = re.search(r"## From Python\n.*?```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert found
    return found.group(1)


def seconds() -> float:
    """Return the wall-clock seconds of a fresh process that runs the example in an empty folder."""
    with TemporaryDirectory() as folder:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", example()], cwd=folder, check=True, capture_output=True)
        return time.perf_counter() - began


def main() -> None:
    idle = min(seconds() for _ in range(REPEATS))
    spinning = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(2)]
    try:
        busy = min(seconds() for _ in range(REPEATS))
    finally:
        for each in spinning:
            each.kill()
            each.wait()
    report("readme_example", "two spinning processes", ratio=busy / idle, compared_with="idle", seconds=busy, idle=idle)


if __name__ == "__main__":
    main()

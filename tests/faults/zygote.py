"""Imports everything once, then forks for each order on its standard input: one JSON object per line in, one out.

A forked child can be told to kill itself with SIGKILL, or to find the disk full, at its n-th step: every moment at
which a file is flushed, given its mode (it has just been written), renamed or removed.
"""

import errno
import json
import mmap
import os
import random
import resource
import signal
import struct
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import matplotlib
import torch

from semifl.cli import display, invoke
from semifl.configuration.config import decode
from semifl.report.curves import draw_curves
from semifl.running.loop import start
from toys import toy_table

SECONDS = 120  # after which a child counts as hanging
STEPS = ("fsync", "chmod", "replace", "unlink")


class Faults:
    """Counts the steps and strikes at one of them."""

    def __init__(self, order: dict[str, Any], counter: mmap.mmap) -> None:
        self.kill_at, self.full_at = order.get("kill_at", 0), order.get("full_at", 0)
        self.torn = random.Random(order.get("kill_at", 0)) if order.get("torn") else None
        self.counter = counter
        self.steps = 0

    def install(self) -> None:
        for name in STEPS:
            setattr(os, name, self.watched(getattr(os, name), name))

    def watched(self, real: Any, name: str) -> Any:
        def call(target: Any, *rest: Any, **named: Any) -> Any:
            self.steps += 1
            self.counter[:8] = struct.pack("q", self.steps)
            if self.steps == self.kill_at:
                if self.torn:
                    self.tear(target, name)
                os.kill(os.getpid(), signal.SIGKILL)
            if self.full_at and self.steps >= self.full_at and name in ("fsync", "chmod"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(target, *rest, **named)

        return call

    def tear(self, target: Any, name: str) -> None:
        """Lose what had not been forced to disk: the end of a new file, or of a line that was being added."""
        assert self.torn
        path = Path(f"/proc/self/fd/{target}").resolve() if isinstance(target, int) else Path(target)
        if path.suffix not in (".part", ".jsonl") or name not in ("fsync", "chmod"):
            return
        content = path.read_bytes()
        last_line = content.rfind(b"\n", 0, len(content) - 1) + 1
        keep = self.torn.randint(last_line if path.suffix == ".jsonl" else 0, len(content))
        os.truncate(path, keep)


def child(order: dict[str, Any], counter: mmap.mmap) -> None:
    signal.alarm(order.get("seconds", SECONDS))
    if "memory" in order:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + order["memory"], used + order["memory"]))
    with Path(order["stderr"]).open("wb") as sink, Path(os.devnull).open("wb") as nowhere:
        os.dup2(sink.fileno(), 2)
        os.dup2(nowhere.fileno(), 1)
    Faults(order, counter).install()
    code = 1
    try:
        code = invoke(order["arguments"])
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 99
    finally:
        sys.stderr.flush()
        os._exit(code)


def warm_up() -> None:
    """Let torch and matplotlib load what they load on first use; one thread alone, so that forking is safe."""
    with TemporaryDirectory() as folder:
        start(decode(toy_table()), Path(folder, "run"))
        draw_curves(Path(folder, "run"))


def main() -> None:
    torch.set_num_threads(1)
    matplotlib.use("agg")
    assert display
    warm_up()
    counter = mmap.mmap(-1, 8)
    for line in sys.stdin:
        counter[:8] = bytes(8)
        pid = os.fork()
        if pid == 0:
            child(json.loads(line), counter)
        _, status = os.waitpid(pid, 0)
        answer = {"code": os.waitstatus_to_exitcode(status), "steps": struct.unpack("q", counter[:8])[0]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()

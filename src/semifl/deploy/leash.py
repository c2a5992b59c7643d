"""What one request of the hub may cost a site: a trainer that takes longer, or more memory, is ended."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from semifl.data.progress import Progress
from semifl.deploy.policy import Limits
from semifl.errors import UserError
from semifl.federation.workers import Here, Workers

LOOK = 0.1  # seconds between two looks
GIGABYTE = 10**9


class Leash:
    """Watches a trainer while it works; `broken` says which limit it met, if it met one."""

    def __init__(self, trainer: Workers | Here, limits: Limits) -> None:
        self.broken = ""
        self._trainer, self._limits = trainer, limits
        self._done = threading.Event()

    def watch(self) -> None:
        until = time.monotonic() + 60 * self._limits.most_minutes
        while not self._done.wait(LOOK):
            # A trainer that is no process of its own is this one, as under Flower.
            taken = sum(memory_of(process) for process in self._trainer.pids() or [os.getpid()])
            if taken > self._limits.most_gigabytes * GIGABYTE:
                self._end(f"memory than the {self._limits.most_gigabytes:g} GB", "most_gigabytes")
            elif time.monotonic() > until:
                self._end(f"time than the {self._limits.most_minutes:g} minutes", "most_minutes")

    def let_go(self) -> None:
        self._done.set()

    def _end(self, what: str, limit: str) -> None:
        self.broken = f"its training took more {what} that its policy allows (limits.{limit})"
        self._trainer.kill()
        self._done.set()


def in_time(limits: Limits) -> Progress:
    """For what this process does itself, step by step: it ends when the time of one request is over."""
    until = time.monotonic() + 60 * limits.most_minutes

    def look(done: int, total: int) -> None:
        if time.monotonic() > until:
            raise UserError(
                f"reading this site's pictures takes more time than the {limits.most_minutes:g} minutes "
                "that its policy allows (limits.most_minutes)"
            )

    return look


@contextmanager
def on_a_leash(trainer: Workers | Here, limits: Limits) -> Iterator[Leash]:
    leash = Leash(trainer, limits)
    watcher = threading.Thread(target=leash.watch, daemon=True)
    watcher.start()
    try:
        yield leash
    finally:
        leash.let_go()
        watcher.join()


def memory_of(process: int) -> int:
    """Bytes that are a process's own: what it shares with others, the pictures, counts for nobody here.

    0 where the system does not tell, or if the process has ended.
    """
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
    except (OSError, StopIteration, ValueError):
        return 0

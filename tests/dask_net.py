"""A Dask scheduler and workers as processes on loopback, for tests."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

TESTS = Path(__file__).parent
TIMEOUT = 60


class DaskNet:
    """`start`, `add_worker` and `kill` in any order; everything that was started is ended, by its id."""

    def __init__(self, folder: Path, paths: Sequence[Path] = (), options: Sequence[object] = ()) -> None:
        self.folder = folder
        self._options = options  # of scheduler and workers alike
        self._paths = [TESTS, *paths]  # where workers find the modules of tests
        self.scheduler: subprocess.Popen[bytes] | None = None
        self.workers: list[subprocess.Popen[bytes]] = []
        self.address = ""
        self._started = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in [*self.workers, *([self.scheduler] if self.scheduler else [])]:
            if process.poll() is None:
                process.kill()
            process.wait(timeout=TIMEOUT)

    def start(self, workers: int) -> str:
        """The scheduler's address; after a kill of the scheduler, the same one again."""
        port = self.address.rpartition(":")[2] or "0"
        file = self.folder / f"scheduler-{self._started}.json"
        self.scheduler = self._launch("scheduler", "--port", port, "--scheduler-file", file)
        deadline = time.monotonic() + TIMEOUT
        self.address = ""
        while not self.address:
            assert time.monotonic() < deadline, "the scheduler did not start"
            assert self.scheduler.poll() is None, "the scheduler ended at once"
            time.sleep(0.02)
            with suppress(OSError, ValueError):  # not there yet, or half written
                self.address = json.loads(file.read_text())["address"]
        for _ in range(workers):
            self.add_worker()
        return self.address

    def add_worker(self, *options: object) -> subprocess.Popen[bytes]:
        threads = [] if "--nthreads" in options else ["--nthreads", 1]
        worker = self._launch("worker", self.address, "--no-nanny", *threads, *options)
        self.workers.append(worker)
        return worker

    def pids(self) -> list[int]:
        return [process.pid for process in [*self.workers, *([self.scheduler] if self.scheduler else [])]]

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=TIMEOUT)
        self.workers = [each for each in self.workers if each is not process]

    def _launch(self, kind: str, *options: object) -> subprocess.Popen[bytes]:
        self._started += 1
        path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), *map(str, self._paths)]))
        command = [sys.executable, "-m", "dask", kind, "--host", "127.0.0.1", "--no-dashboard"]
        command += map(str, [*self._options, *options])
        with (self.folder / f"{kind}-{self._started}.log").open("wb") as log:
            return subprocess.Popen(
                command, cwd=self.folder, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": path}
            )

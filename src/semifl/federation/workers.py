"""Where jobs run: in this process, or in worker processes with one thread each. Results come in the order of the items.

A job is `function(place, common, item)`: the place is what every worker holds (data, network), the common message is
sent once for all items. A job that raises gives a JobFailed in its turn, and the others go on. Bits do not depend on
the kind of pool or the number of workers.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import multiprocessing.connection
import os
import signal
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any, NamedTuple, Protocol

import torch
import torch.multiprocessing

from semifl.errors import RunStopped, error_sentence
from semifl.federation.shared_memory import Handle, SharedMessages

Job = Callable[[Any, Any, Any], Any]
AHEAD = 2  # jobs a worker may have in hand: it never waits for this process between two


class JobFailed(Exception):
    """A job raised: what, in one line, the traceback, the system's error number if it was the disk, and its type."""

    def __init__(self, reason: str, trace: str, errno: int | None = None, kind: str = "") -> None:
        super().__init__(reason)
        self.reason, self.trace, self.errno, self.kind = reason, trace, errno, kind
        if trace:
            self.add_note(trace)  # so that every traceback of this error shows where the job raised

    def __reduce__(self) -> tuple[Any, ...]:
        return JobFailed, (self.reason, self.trace, self.errno, self.kind)

    @staticmethod
    def of(error: Exception) -> JobFailed:
        number = error.errno if isinstance(error, OSError) else None
        return JobFailed(error_sentence(error), traceback.format_exc(), number, type(error).__name__)


def must(results: Iterator[Any]) -> Iterator[Any]:
    """The results of jobs that may not fail."""
    for result in results:
        if isinstance(result, JobFailed):
            raise RunStopped(result.reason) from result
        yield result


class Log(NamedTuple):
    """Where a pool's news go: events, by kind and facts, to be written down; warnings to whoever watches."""

    event: Callable[..., None]
    warn: Callable[[str], None]


class Pool(Protocol):
    @property
    def sees_files(self) -> bool:
        """Whether jobs read and write the files of the run itself."""
        ...

    def run(self, job: Job, common: Any, items: Sequence[Any]) -> Iterator[Any]: ...

    def close(self) -> None: ...

    def kill(self) -> None:
        """End what runs at once; whoever waits for it hears that it died."""
        ...


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """A CPU's bits depend on the number of threads, so every computation says how many it uses."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Here:
    """Run jobs in this process, one after the other."""

    sees_files = True

    def __init__(self, place: Any) -> None:
        self._place = place

    def run(self, job: Job, common: Any, items: Sequence[Any]) -> Iterator[Any]:
        for item in items:
            try:
                with threads(1):
                    result = job(self._place, common, item)
            except Exception as error:
                result = JobFailed.of(error)
            yield result

    def close(self) -> None:
        pass

    def kill(self) -> None:
        os._exit(1)  # there is nobody else to end

    def pids(self) -> list[int]:
        """Of the processes that can be ended alone: none."""
        return []


class Workers:
    """Run jobs in `count` processes; one that dies is replaced and its jobs are repeated."""

    sees_files = True

    def __init__(
        self, place: Any, count: int, max_losses: int = 3, on_loss: Callable[[int | None], None] | None = None
    ) -> None:
        self._place = place
        self._losses_left = max_losses
        self._on_loss = on_loss or (lambda exit_code: None)
        self._common = SharedMessages()
        self._team = [_Worker(place) for _ in range(count)]

    def run(self, job: Job, common: Any, items: Sequence[Any]) -> Iterator[Any]:
        self._settle()
        handle = self._common.put(common, always_send_store=True)
        waiting = deque(range(len(items)))
        done: dict[int, Any] = {}
        wanted = 0
        for worker in self._team:
            worker.prepare(job, handle)
        while wanted < len(items):
            self._hand_out(waiting, items, limit=wanted + 2 * AHEAD * len(self._team))
            for worker in self._ready():
                try:
                    number, result = worker.receive()
                except (EOFError, OSError):  # gone between two answers, or in the middle of one
                    waiting.extendleft(sorted(worker.in_hand, reverse=True))
                    self._replace(worker, job, handle)
                else:
                    done[number] = result
            while wanted in done:
                yield done.pop(wanted)
                wanted += 1

    def close(self) -> None:
        for worker in self._team:
            worker.stop()

    def kill(self) -> None:
        for worker in self._team:
            worker.process.kill()

    def pids(self) -> list[int]:
        return [worker.process.pid for worker in self._team if worker.process.pid is not None]

    def _hand_out(self, waiting: deque[int], items: Sequence[Any], limit: int) -> None:
        """Give the next jobs to whoever has the fewest; the limit keeps results from piling up behind a slow one."""
        while waiting and waiting[0] < limit:
            worker = min(self._team, key=lambda each: len(each.in_hand))
            # Near the end nobody queues behind a slow client while another worker has nothing to do.
            if len(worker.in_hand) >= (AHEAD if len(waiting) > len(self._team) else 1):
                return
            worker.send(waiting[0], items[waiting[0]])
            waiting.popleft()

    def _ready(self) -> list[_Worker]:
        busy = {worker.pipe: worker for worker in self._team if worker.in_hand}
        return [busy[pipe] for pipe in multiprocessing.connection.wait(list(busy))]

    def _replace(self, worker: _Worker, job: Job, handle: Handle) -> None:
        worker.stop()
        self._on_loss(worker.process.exitcode)
        if self._losses_left == 0:
            raise RunStopped(
                f"worker processes keep dying (the last with exit code {worker.process.exitcode}); "
                "if memory is short, use fewer --workers"
            )
        self._losses_left -= 1
        fresh = _Worker(self._place)
        fresh.prepare(job, handle)
        self._team[self._team.index(worker)] = fresh

    def _settle(self) -> None:
        """Let jobs of an abandoned run come to their end: only the next run waits for them, never a Ctrl-C."""
        while any(worker.in_hand for worker in self._team):
            for worker in self._ready():
                try:
                    worker.receive()
                except (EOFError, OSError):
                    worker.stop()
                    self._on_loss(worker.process.exitcode)
                    self._team[self._team.index(worker)] = _Worker(self._place)


class _Worker:
    """This process's end of one worker process."""

    def __init__(self, place: Any) -> None:
        context = _context()
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, place), daemon=True)
        with _without_main():
            self.process.start()
        theirs.close()
        self.in_hand: deque[int] = deque()
        self._outgoing = [SharedMessages() for _ in range(AHEAD)]
        self._incoming = [SharedMessages() for _ in range(AHEAD)]
        self._sent = self._received = 0

    def prepare(self, job: Job, common: Handle) -> None:
        with contextlib.suppress(ConnectionError):  # a dead worker is noticed when its first result is awaited
            self.pipe.send(("prepare", job, common))

    def send(self, number: int, item: Any) -> None:
        handle = self._outgoing[self._sent % AHEAD].put(item)
        self.in_hand.append(number)  # only now: an item that cannot travel has not been sent
        self._sent += 1
        with contextlib.suppress(ConnectionError):
            self.pipe.send(("job", handle))

    def receive(self) -> tuple[int, Any]:
        kind, handle = self.pipe.recv()
        number = self.in_hand.popleft()
        result = self._incoming[self._received % AHEAD].get(handle, copy=True)
        self._received += 1
        return number, JobFailed(*result) if kind == "error" else result

    def stop(self) -> None:
        self.pipe.close()
        self.process.join(timeout=2)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.in_hand.clear()


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """Let a process start without running the person's program again.

    It would, to find what that defines, and a script that trains without `if __name__ == "__main__"` would then train
    in every worker. Nothing that a place holds may be defined there; the Python API sees to it.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _context() -> Any:
    # A fork server starts workers in milliseconds from a clean process: forking this one could copy a held lock.
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = torch.multiprocessing.get_context(method)
    if method == "forkserver":
        context.set_forkserver_preload([__name__])
    return context


def _work(pipe: Any, place: Any) -> None:
    """The life of a worker process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which ends its workers in order
    torch.set_num_threads(1)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    common_box, incoming, outgoing = (
        SharedMessages(),
        [SharedMessages() for _ in range(AHEAD)],
        [SharedMessages() for _ in range(AHEAD)],
    )
    job: Job | None = None
    common: Any = None
    count = 0
    while True:
        try:
            kind, *rest = pipe.recv()
        except (EOFError, ConnectionError):
            return
        if kind == "prepare":
            job, common = rest[0], common_box.get(rest[1], copy=False)
            continue
        assert job is not None
        slot = count % AHEAD
        count += 1
        try:
            answer = ("result", outgoing[slot].put(job(place, common, incoming[slot].get(rest[0], copy=False))))
        except Exception as error:
            failed = JobFailed.of(error)
            answer = ("error", outgoing[slot].put((failed.reason, failed.trace, failed.errno, failed.kind)))
        try:
            pipe.send(answer)
        except ConnectionError:
            return


def _die_with_parent() -> None:
    """A killed run must not leave workers computing for nobody."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)

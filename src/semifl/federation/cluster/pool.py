"""A pool on a cluster: a worker is given the place once, each message once, and jobs as long as there are any.

Dask moves the bytes, finds a free worker and repeats the jobs of one that dies. What it cannot repeat is put right
here: a message that was lost with all who held it, and jobs whose workers are all gone.
"""

from __future__ import annotations

import contextlib
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from itertools import takewhile
from typing import Any

from distributed import Client, Future, KilledWorker, wait

from semifl.errors import UserError
from semifl.federation.cluster.address import Cluster
from semifl.federation.cluster.team import Team
from semifl.federation.cluster.worker import UNKNOWN, act, forget, receive
from semifl.federation.packing import Packed, pack, unpack
from semifl.federation.workers import AHEAD, Job, JobFailed, Log

LARGE = 1 << 20  # bytes of an item from which it goes to a worker at once, and not by way of the scheduler
SEEDS = 16  # workers that get a message from here
SEND = 5  # seconds until a worker that takes nothing is looked at again
LOOK = 1.0  # seconds between two looks at who is there, while jobs run


class ClusterPool:
    """Run jobs on the workers of a cluster."""

    sees_files = False  # a worker's disk is not this machine's

    def __init__(self, place: Any, cluster: Cluster, log: Log) -> None:
        self._name = uuid.uuid4().hex
        self._device = cluster.device
        self._place = place
        self._team = Team(cluster, log, self._give_place)

    def run(self, job: Job, common: Any, items: Sequence[Any]) -> Iterator[Any]:
        batch = _Batch(self._team, self._name, job, common, items)
        try:
            yield from batch.results()
        finally:
            batch.abandon()

    def as_done(self, job: Job, items: Sequence[Any]) -> Iterator[tuple[int, Any]]:
        """The same for jobs of which none waits for another: each result as it comes, with the item's number."""
        batch = _Batch(self._team, self._name, job, None, items)
        try:
            yield from batch.as_done()
        finally:
            batch.abandon()

    def workers(self) -> list[str]:
        """Who may take part now."""
        self._team.look()
        return self._team.known()

    def close(self) -> None:
        if self._team.client.status == "running":
            with contextlib.suppress(Exception):  # whoever is gone has forgotten anyway
                self._team.client.run(forget, self._name, on_error="ignore")
        self._team.close()

    def kill(self) -> None:
        self._team.close()

    def _give_place(self, client: Client, worker: str) -> str:
        try:
            said = client.run(receive, self._name, pack(self._place), self._device, workers=[worker])
        except OSError as error:
            return f"it could not be given the data ({error})"
        return str(said[worker])


class _Batch:
    """The jobs of one call of `run`."""

    def __init__(self, team: Team, run: str, job: Job, common: Any, items: Sequence[Any]) -> None:
        self._team = team
        self._run = run
        self._job = job
        self._packed = pack(common)
        self._items = items
        self._waiting = deque(range(len(items)))
        self._begun: dict[int, tuple[Future, frozenset[str]]] = {}  # by item: the job, and who may do it
        self._done: dict[int, Any] = {}
        self._message: tuple[str, Future] | None = None

    def results(self) -> Iterator[Any]:
        """In the order of the items; a limit keeps them from piling up behind a slow one."""
        self._team.look()
        for wanted in range(len(self._items)):
            while wanted not in self._done:
                self._hand_out(wanted, 2 * AHEAD)
                self._collect()
            yield self._done.pop(wanted)

    def as_done(self) -> Iterator[tuple[int, Any]]:
        self._team.look()
        told = 0
        while told < len(self._items):
            self._hand_out(told, 1)
            self._collect()
            for number in list(self._done):
                told += 1
                yield number, self._done.pop(number)

    def abandon(self) -> None:
        """Jobs that nobody waits for any more are not begun; those that run come to their end."""
        with contextlib.suppress(Exception):
            self._team.client.cancel([future for future, _ in self._begun.values()])
        self._begun.clear()
        self._message = None

    def _hand_out(self, first: int, ahead: int) -> None:
        """The next jobs, so many for each worker beyond the first that is still missing."""
        members = self._team.members()
        limit = first + ahead * len(members)
        numbers = list(takewhile(lambda number: number < limit, self._waiting))
        if not numbers:
            return
        try:
            futures = self._sent(members, numbers)
        except (OSError, TimeoutError):  # whoever was to receive it is gone
            self._message = None
            self._team.look()
            return
        for number, future in zip(numbers, futures, strict=True):
            self._begun[number] = (future, frozenset(members))
            self._waiting.popleft()

    def _sent(self, members: list[str], numbers: list[int]) -> list[Future]:
        """Jobs in one message, which costs the scheduler hardly more than one job would."""
        if self._message is None:
            self._message = self._spread(members)
        items = [self._ready_to_go(pack(self._items[number]), members) for number in numbers]
        name, message = self._message
        same = {"run": self._run, "job": self._job, "name": name, "common": message}
        return list(self._team.client.map(act, items, workers=members, pure=False, **same))

    def _ready_to_go(self, item: Packed, members: list[str]) -> Packed | Future:
        if item.size < LARGE:
            return item
        held: Future = self._team.client.scatter([item], workers=members, hash=False, timeout=SEND)[0]
        return held

    def _spread(self, members: list[str]) -> tuple[str, Future]:
        """The message at so many workers that the others, and whoever joins later, find it near.

        One after the other: Dask's own way to copy to all of them never ends if one dies meanwhile.
        """
        name, client, held = uuid.uuid4().hex, self._team.client, None
        for worker in members[:SEEDS]:
            try:
                held = client.scatter({name: self._packed}, workers=[worker], hash=False, timeout=SEND)[name]
            except (OSError, TimeoutError):  # gone, as the next look will tell
                continue
        if held is None:
            raise ConnectionError("nobody took the message")
        return name, held

    def _collect(self) -> None:
        """Wait until a job is done, or a moment to see who is there."""
        futures = [future for future, _ in self._begun.values()]
        if not futures:
            return
        try:
            with self._team.client.as_current():
                wait(futures, timeout=LOOK, return_when="FIRST_COMPLETED")
        except TimeoutError:
            self._team.look()
            self._take_back_from_the_dead()
        except CancelledError:  # told one by one below
            self._team.refuse_lost_scheduler()
        ended = {number: future for number, (future, _) in self._begun.items() if future.done()}
        finished = {number: future for number, future in ended.items() if future.status == "finished"}
        answers = self._gathered(list(finished.values()))
        for number, answer in zip(finished, answers, strict=True):
            self._take(number, answer)
        for number in ended.keys() - finished.keys():
            self._mend(number, ended[number])

    def _gathered(self, futures: list[Future]) -> list[Any]:
        try:
            return list(self._team.client.gather(futures)) if futures else []
        except CancelledError:
            self._team.refuse_lost_scheduler()
            raise

    def _take(self, number: int, answer: tuple[str, Any]) -> None:
        kind, content = answer
        del self._begun[number]
        if kind == UNKNOWN:
            self._team.expel(content)
            self._again(number)
        else:
            self._done[number] = JobFailed(*content) if kind == "error" else unpack(content)

    def _mend(self, number: int, future: Future) -> None:
        """A job that ended without an answer."""
        del self._begun[number]
        if future.status == "cancelled":  # the message was lost with all who held it
            self._team.refuse_lost_scheduler()
            self._message = None
            self._again(number)
            return
        error = future.exception()
        if isinstance(error, KilledWorker):
            error = UserError("it ended one worker after the other; if memory is short, start fewer on a machine")
        self._done[number] = JobFailed.of(error)

    def _take_back_from_the_dead(self) -> None:
        there = set(self._team.known())
        for number in [number for number, (_, may) in self._begun.items() if not may & there]:
            future, _ = self._begun.pop(number)
            future.cancel()
            self._message = None
            self._again(number)

    def _again(self, number: int) -> None:
        self._waiting = deque(sorted([*self._waiting, number]))

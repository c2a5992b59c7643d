"""Trackers: programs beside semifl that draw a run's numbers while it goes on. One file each, each an extra.

A tracker is given numbers by name and round, and nothing else; what those are is decided here, once for all of them.
"""

from __future__ import annotations

import importlib
import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from semifl.configuration.build import World
from semifl.durable import replace_text
from semifl.errors import UserError
from semifl.records.directory import RunDirectory
from semifl.records.metrics import Metric
from semifl.records.record import ABSENT, RoundRecord
from semifl.registry import unknown
from semifl.running.context import BaselineProgress, Observer, Silent
from semifl.toml import Table, dotted

TRACKERS = ("tensorboard", "mlflow", "wandb")  # files of this folder, and names of extras
IDS = "trackers.json"  # under which names trackers know a run


class Tracker(Protocol):
    """Somewhere that numbers go."""

    def write(self, numbers: dict[str, float], round: int) -> None: ...

    def close(self) -> None: ...


class Tracked(Silent):
    """Tells another observer everything, and a tracker the numbers of each round.

    The tracker is opened when the run has begun: a run that is refused leaves nothing behind. One that fails is told of
    and left alone: curves are not worth a run.
    """

    def __init__(self, name: str, directory: RunDirectory, other: Observer) -> None:
        self._name = name
        self._directory = directory
        self._other = other
        self._tracker: Tracker | None = None
        self._metric: Metric = "accuracy"

    def begin(self, world: World, first_round: int) -> None:
        self._metric = world.config.run.metric
        self._other.begin(world, first_round)
        module = importlib.import_module(f"{__name__}.{self._name}")
        try:
            settings = {name: value for name, value in dotted(world.config.table())}
            self._tracker = module.open_tracker(self._directory.path, settings)
        except Exception as error:
            self._give_up(error)
        # Curves of a run that goes on begin where it began, also if nobody asked for them then.
        for record in self._directory.rounds():
            if record["round"] < first_round:
                self._write(dict(numbers(record)), record["round"])

    def baseline(self, progress: BaselineProgress) -> None:
        self._other.baseline(progress)

    def labels_only(self, value: float) -> None:
        self._write({f"labels_only_{self._metric}": value}, 0)
        self._other.labels_only(value)

    def round(self, record: RoundRecord, best: float | None) -> None:
        self._write(dict(numbers(record)), record["round"])
        self._other.round(record, best)

    def warn(self, message: str) -> None:
        self._other.warn(message)

    def close(self) -> None:
        if self._tracker:
            try:
                self._tracker.close()
            except Exception as error:
                self._give_up(error)

    def _write(self, found: dict[str, float], round: int) -> None:
        if self._tracker:
            try:
                self._tracker.write(found, round)
            except Exception as error:
                self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        self._tracker = None
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        self._other.warn(f"{self._name} gets no more numbers, and the run goes on without it ({reason})")


@contextmanager
def tracked(names: Sequence[str], directory: Path, observer: Observer) -> Iterator[Observer]:
    """The observer itself, or one that also tells these trackers."""
    with ExitStack() as stack:
        for name in dict.fromkeys(names):
            if name not in TRACKERS:
                raise unknown(name, "--track", TRACKERS)
            try:
                importlib.import_module(f"{__name__}.{name}")
            except ImportError as error:
                raise UserError(f"--track {name} needs an extra package: pip install 'semifl[{name}]'") from error
            watching = Tracked(name, RunDirectory(directory), observer)
            stack.callback(watching.close)
            observer = watching
        yield observer


def known_id(directory: Path, name: str) -> tuple[str, bool]:
    """Under which name a tracker knows a run, and whether it has been told of it before."""
    ids = RunDirectory(directory).facts(IDS)
    if isinstance(ids.get(name), str):
        return str(ids[name]), True
    return uuid.uuid4().hex[:16], False


def keep_id(directory: Path, name: str, number: str) -> None:
    replace_text(directory / IDS, json.dumps({**RunDirectory(directory).facts(IDS), name: number}) + "\n")


def numbers(record: RoundRecord) -> Iterator[tuple[str, float]]:
    """Every number of a round, by the name it is drawn under."""
    for key, value in record.items():
        if key == "round" or isinstance(value, bool):
            continue
        if isinstance(value, (int, float)):
            yield key, value
    yield "clients/cohort", len(record["cohort"])
    yield from ((f"clients/{name}", len(record[name])) for name in ABSENT)
    yield from ((f"seconds/{phase}", spent) for phase, spent in record["seconds"].items())
    for side, terms in (("server", record["terms"]["server"]), ("clients", record["terms"]["clients"])):
        yield from ((f"terms/{side}/{name}", mean) for name, mean in terms.items() if mean is not None)


Settings = Table  # every value of a configuration, by its whole name

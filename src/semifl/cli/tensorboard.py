"""`--tensorboard`: every number of a round as a curve that TensorBoard can show while the run goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from semifl.configuration.build import World
from semifl.errors import UserError
from semifl.records.directory import RunDirectory
from semifl.records.metrics import Metric
from semifl.records.record import ABSENT, RoundRecord
from semifl.running.context import Observer, Silent


class TensorBoard(Silent):
    """Tells another observer everything, and writes the numbers of each round down."""

    def __init__(self, directory: RunDirectory, make_writer: Callable[[], Any], other: Observer) -> None:
        self._directory = directory
        self._make_writer = make_writer
        self._other = other
        self._metric: Metric = "accuracy"

    @cached_property
    def _writer(self) -> Any:
        """Made when the run has begun: a run that is refused leaves nothing behind."""
        return self._make_writer()

    def begin(self, world: World, first_round: int) -> None:
        self._metric = world.config.run.metric
        self._other.begin(world, first_round)
        # Curves of a run that goes on begin where it began, also if TensorBoard was not asked for then.
        for record in self._directory.rounds():
            if record["round"] < first_round:
                self._write(record)

    def baseline(self, done: int, rounds: int) -> None:
        self._other.baseline(done, rounds)

    def labels_only(self, value: float) -> None:
        self._writer.add_scalar(f"labels_only_{self._metric}", value, 0)
        self._other.labels_only(value)

    def round(self, record: RoundRecord, best: float) -> None:
        self._write(record)
        self._other.round(record, best)

    def _write(self, record: RoundRecord) -> None:
        for name, value in _numbers(record):
            self._writer.add_scalar(name, value, record["round"])
        self._writer.flush()

    def warn(self, message: str) -> None:
        self._other.warn(message)


@contextmanager
def watched_by_tensorboard(wanted: bool, directory: Path, observer: Observer) -> Iterator[Observer]:
    """The observer itself, or one that also writes RUN/tensorboard."""
    if not wanted:
        yield observer
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UserError("--tensorboard needs an extra package: pip install 'semifl[tensorboard]'") from error
    yield TensorBoard(RunDirectory(directory), lambda: SummaryWriter(directory / "tensorboard", purge_step=0), observer)


def _numbers(record: RoundRecord) -> Iterator[tuple[str, float]]:
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

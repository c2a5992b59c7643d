"""A run directory as the report reads it: whatever is there, whatever state it is in. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from semifl.errors import UserError
from semifl.records.directory import FILES, RunDirectory
from semifl.records.metrics import metric_of, of_the_kept
from semifl.records.record import JSON, number
from semifl.toml import dotted

MOST_CLIENTS = 10**6  # what lies beyond is damage
EVEN = 0.5  # the decision threshold where labels held out have chosen no other


@dataclass(frozen=True)
class Run:
    """What could be read; `problems` says in sentences what could not."""

    path: Path
    config: JSON
    environment: JSON
    rounds: list[JSON]
    events: list[JSON]
    result: JSON
    world: JSON
    confusion: list[list[float]]
    gallery: JSON
    labels_only: JSON = field(default_factory=dict)
    reliability: list[JSON] = field(default_factory=list)
    counted_at: float | None = None  # the threshold of `confusion`; an earlier version counted by the likelier class
    problems: list[str] = field(default_factory=list)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The configuration by dotted names."""
        return dict(dotted(self.config))

    @property
    def seed(self) -> Any:
        return self.config.get("seed", self.result.get("seed", "?"))

    @property
    def method(self) -> str:
        return str(self.settings.get("method.name", self.result.get("method", "unknown method")))

    @property
    def dataset(self) -> str:
        name = str(self.settings.get("data.name", self.result.get("dataset", "unknown data")))
        return name.rpartition(":")[2]  # of a class of somebody's own, package.module:Class, the last word will do

    @cached_property
    def outcome(self) -> JSON:
        """The result; of a run that goes on, what its labels-only models have reached."""
        return {"metric": metric_of(self.settings)} | self.labels_only | self.result

    def of_the_kept(self, name: str) -> Any:
        """A number of the model that a finished run has kept: the last one, or the best by labels held out."""
        return self.result.get(f"{of_the_kept(self.result)}{name}")

    @property
    def is_finished(self) -> bool:
        return bool(self.result)

    @cached_property
    def class_names(self) -> list[str]:
        """As the data set calls them, or their numbers before the run has written them down."""
        names = self.world.get("class_names")
        if isinstance(names, list) and names:
            return [str(name) for name in names]
        counted = max((len(counts(each.get("class_histogram"))) for each in self.rounds), default=0)
        return [str(label) for label in range(max(counted, len(self.confusion)))]

    @cached_property
    def client_count(self) -> int:
        """How many clients there are, or were at least asked."""
        pictures = self.world.get("client_pictures")
        known = len(pictures) if isinstance(pictures, list) else int(number(self.settings.get("data.clients")) or 0)
        known = min(known, MOST_CLIENTS)
        asked = (client for record in self.rounds for client in clients(record, "cohort"))
        return max(known, max(asked, default=-1) + 1)

    def site_name(self, client: int) -> str:
        names = self.world.get("sites")
        return str(names[client]) if isinstance(names, list) and client < len(names) else f"client {client}"

    def series(self, key: str, scale: float = 1.0) -> dict[int, float]:
        """One number by round, where there is one; a dotted key is looked up table by table."""
        values = {each["round"]: number(_inner(each, key)) for each in self.rounds}
        return {index: scale * value for index, value in values.items() if value is not None}

    def names(self, key: str) -> list[str]:
        """What a table in the records holds, in any round."""
        tables = [table for each in self.rounds if isinstance(table := _inner(each, key), dict)]
        return list(dict.fromkeys(str(name) for table in tables for name in table))


def _inner(record: Any, key: str) -> Any:
    for part in key.split("."):
        record = record.get(part) if isinstance(record, dict) else None
    return record


def read_run(path: Path) -> Run:
    """Everything that is there; a UserError only if this is no run directory at all."""
    if not path.is_dir():
        raise UserError(f"there is no run directory {path}")
    if not any((path / name).is_file() for name in ("config.toml", "rounds.jsonl", "result.json")):
        raise UserError(f"{path} is not a run directory: it has no config.toml")
    run, problems = RunDirectory(path), list[str]()
    if run.is_project():
        raise UserError(f"{path} is a project and not a run: start one with 'semifl run {path}/config.toml'")
    config, rounds, result = run.config(problems), run.rounds(problems), run.outcome(problems)
    detail = run.facts("confusion.json", problems)
    if not result:
        problems.append(f"This run is not finished: {len(rounds)} of {config.get('rounds', 'its')} rounds are done.")
    return Run(
        path,
        config,
        run.environment(problems),
        rounds,
        run.lines("events.jsonl", problems),
        result,
        run.facts("world.json", problems),
        _matrix(detail.get("counts")) if result else [],
        run.facts("gallery/gallery.json", problems),
        run.facts("labels_only.json", problems),
        _bins(detail.get("reliability")) if result else [],
        number(detail.get("threshold")),
        problems,
    )


def stamp(paths: Sequence[Path]) -> str:
    """Changes whenever a file that the report reads does."""
    marks = []
    for path in (path / name for path in paths for name in FILES):
        try:
            about = path.stat()
        except OSError:
            continue
        marks.append(f"{about.st_mtime_ns:x}.{about.st_size:x}")
    return "-".join(marks)


def counts(value: Any) -> list[float]:
    """A list of numbers; empty if any of it is something else."""
    numbers = [number(each) for each in value] if isinstance(value, list) else []
    return [each for each in numbers if each is not None and each >= 0] if None not in numbers else []


def clients(record: JSON, key: str) -> list[int]:
    """Clients by number, as `cohort` or `abstained` has them."""
    listed = record.get(key)
    return (
        [each for each in listed if type(each) is int and 0 <= each < MOST_CLIENTS] if isinstance(listed, list) else []
    )


def _bins(listed: Any) -> list[JSON]:
    """Bins of confidence, each with all of its numbers."""
    bins = [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
    return [each for each in bins if None not in map(number, map(each.get, ("pictures", "confidence", "accuracy")))]


def _matrix(rows: Any) -> list[list[float]]:
    matrix = [counts(row) for row in rows] if isinstance(rows, list) else []
    return matrix if all(len(row) == len(matrix) for row in matrix) else []

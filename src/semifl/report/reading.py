"""A run directory as the report reads it: whatever is there, whatever state it is in. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from semifl.errors import UserError
from semifl.parsing import from_json, from_toml
from semifl.regular import read_text

Record = dict[str, Any]
LARGEST = 1e18  # of numbers; MOST_CLIENTS of sites: what lies beyond is damage
MOST_CLIENTS = 10**6
FILES = (
    *("config.toml", "environment.json", "rounds.jsonl", "events.jsonl"),
    *("result.json", "world.json", "confusion.json", "gallery/gallery.json"),
)


@dataclass(frozen=True)
class Run:
    """What could be read; `problems` says in sentences what could not."""

    path: Path
    config: Record
    environment: Record
    rounds: list[Record]
    events: list[Record]
    result: Record
    world: Record
    confusion: list[list[float]]
    gallery: Record
    problems: list[str] = field(default_factory=list)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The configuration by dotted names."""
        return dict(_leaves(self.config, ""))

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
    problems: list[str] = []
    config = _config(path / "config.toml", problems)
    rounds = _rounds(path / "rounds.jsonl", problems)
    result = _object(path / "result.json", problems)
    if number(result.get("accuracy")) is None:
        result = {}
        problems.append(f"This run is not finished: {len(rounds)} of {config.get('rounds', 'its')} rounds are done.")
    return Run(
        path,
        config,
        _object(path / "environment.json", problems),
        rounds,
        _lines(path / "events.jsonl", problems),
        result,
        _object(path / "world.json", problems),
        _matrix(_object(path / "confusion.json", problems).get("counts")) if result else [],
        _object(path / "gallery/gallery.json", problems),
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


def number(value: Any) -> float | None:
    """A number that can be drawn, or None: files may say anything."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < LARGEST else None  # not a number is not below anything either


def counts(value: Any) -> list[float]:
    """A list of numbers; empty if any of it is something else."""
    numbers = [number(each) for each in value] if isinstance(value, list) else []
    return [each for each in numbers if each is not None and each >= 0] if None not in numbers else []


def clients(record: Record, key: str) -> list[int]:
    """Clients by number, as `cohort` or `abstained` has them."""
    listed = record.get(key)
    return (
        [each for each in listed if type(each) is int and 0 <= each < MOST_CLIENTS] if isinstance(listed, list) else []
    )


def _leaves(table: Record, prefix: str) -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, value in table.items():
        name = f"{prefix}{key}"
        pairs += _leaves(value, f"{name}.") if isinstance(value, dict) else [(name, value)]
    return pairs


def _matrix(rows: Any) -> list[list[float]]:
    matrix = [counts(row) for row in rows] if isinstance(rows, list) else []
    return matrix if all(len(row) == len(matrix) for row in matrix) else []


def _config(path: Path, problems: list[str]) -> Record:
    try:
        config = from_toml(read_text(path))
    except (OSError, ValueError) as error:
        problems.append(f"config.toml cannot be read: {_reason(error)}.")
        return {}
    if isinstance(config.get("method"), dict):
        return config
    problems.append("config.toml is damaged: it has no section method.")
    return {}


def _object(path: Path, problems: list[str]) -> Record:
    """A JSON object; nothing if there is no such file yet, or if it is damaged."""
    if not path.exists():
        return {}
    try:
        content = from_json(read_text(path))
    except (OSError, ValueError) as error:
        problems.append(f"{path.name} cannot be read: {_reason(error)}.")
        return {}
    if isinstance(content, dict):
        return content
    problems.append(f"{path.name} is damaged: it holds no JSON object.")
    return {}


def _rounds(path: Path, problems: list[str]) -> list[Record]:
    """The rounds as far as they are sound and count upwards."""
    rounds: list[Record] = []
    for record in _lines(path, problems):
        index = record.get("round")
        if type(index) is not int or not (rounds[-1]["round"] if rounds else 0) < index < 10**9:
            problems.append(f"rounds.jsonl is damaged after its line {len(rounds)}; what comes later is not shown.")
            break
        rounds.append(record)
    return rounds


def _lines(path: Path, problems: list[str]) -> list[Record]:
    """One JSON object per line, up to the first that is none: the last may have been cut off by a crash."""
    if not path.exists():
        return []
    try:
        lines = read_text(path, errors="replace").splitlines()
    except OSError as error:
        problems.append(f"{path.name} cannot be read: {_reason(error)}.")
        return []
    records: list[Record] = []
    for line in lines:
        try:
            record = from_json(line)
        except ValueError:
            record = None
        if not isinstance(record, dict):
            problems.append(f"{path.name} is cut off or damaged in line {len(records) + 1} of {len(lines)}.")
            break
        records.append(record)
    return records


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error).splitlines()[0]

"""Several runs side by side: those that differ only by seed are one line, with its mean and a band."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from semifl.records.metrics import OF_A_MODEL, Metric, metric_of
from semifl.records.record import number
from semifl.records.verdict import labels_only
from semifl.report.reading import Run

OF_THE_TEST = (*OF_A_MODEL, "loss")  # what a round has only if its model was tested
SEEDLESS = ("seed", "threads", "stack", "compile", "test_every")  # what may differ between runs of one group


class Point(NamedTuple):
    """A round's mean over the seeds, and one sample standard deviation to either side."""

    round: int
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Group:
    label: str
    runs: list[Run]

    @property
    def metric(self) -> Metric:
        """What decided in these runs."""
        return metric_of(self.runs[0].settings)

    @property
    def last_round(self) -> int:
        """The last that any run has done, tested or not."""
        return max((run.rounds[-1]["round"] for run in self.runs if run.rounds), default=0)

    def series(self, key: str, scale: float = 1.0) -> list[Point]:
        """Means over the runs that have the round; a band where there are at least two.

        A round that only some of them have tested is left out: its mean would be that of other seeds than its
        neighbours'.
        """
        by_run = [run.series(key, scale) for run in self.runs]
        rounds = sorted(set().union(*by_run))
        if key in OF_THE_TEST:
            done = [{each["round"] for each in run.rounds} for run in self.runs]
            untested = set().union(*(there - values.keys() for there, values in zip(done, by_run, strict=True)))
            rounds = [index for index in rounds if index not in untested]
        return [_point(index, [values[index] for values in by_run if index in values]) for index in rounds]

    def names(self, key: str) -> list[str]:
        """What a table in the records of any run holds."""
        return list(dict.fromkeys(name for run in self.runs for name in run.names(key)))

    def result(self, key: str) -> float | None:
        """The mean of something in result.json over the runs that have it by now."""
        return mean(self.by_run(key))

    def reached(self, name: str) -> list[float | None]:
        """Return a number of each run's kept model."""
        return [number(run.of_the_kept(name)) for run in self.runs]

    def alone(self, name: str) -> list[float | None]:
        """Return a number of each run's better labels-only model."""
        return [labels_only(run.outcome, name) for run in self.runs]

    def by_run(self, key: str) -> list[float | None]:
        return [number(run.outcome.get(key)) for run in self.runs]


def mean(values: Sequence[float | None]) -> float | None:
    """Return the mean of the values that are there."""
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None


def _point(index: int, values: list[float]) -> Point:
    middle, spread = statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0
    return Point(index, middle, middle - spread, middle + spread)


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """In the order of their first run; a run whose configuration is lost stands alone."""
    by_config: dict[str, list[Run]] = {}
    for run in runs:
        key = json.dumps(_seedless(run), sort_keys=True, default=str) if run.config else str(run.path)
        by_config.setdefault(key, []).append(run)
    groups = list(by_config.values())
    return [Group(label, members) for label, members in zip(_labels(groups), groups, strict=True)]


def _seedless(run: Run) -> dict[str, Any]:
    return {key: value for key, value in run.settings.items() if key not in SEEDLESS}


def _labels(groups: list[list[Run]]) -> list[str]:
    """What tells the groups apart, in few words."""
    if len(groups) == 1:
        return [groups[0][0].method]
    firsts = [members[0] for members in groups]
    tables = [_seedless(run) for run in firsts]
    differing = [key for key in dict.fromkeys(key for table in tables for key in table) if _differs(tables, key)]
    if "method.name" in differing:  # another method has other fields; its name says it
        differing = ["method.name", *(key for key in differing if not key.startswith("method."))]
    labels = [", ".join(_setting(key, table[key]) for key in differing if key in table) for table in tables]
    clear = len(set(labels)) == len(labels) and all(labels) and max(map(len, labels)) <= 60
    if clear:
        return labels
    names = [run.path.name for run in firsts]
    return names if len(set(names)) == len(names) else [str(run.path) for run in firsts]


def _differs(tables: list[dict[str, Any]], key: str) -> bool:
    return len({json.dumps(table.get(key), default=str) for table in tables}) > 1


def _setting(key: str, value: Any) -> str:
    return str(value) if key == "method.name" else f"{key.split('.')[-1]} = {value}"

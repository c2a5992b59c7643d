"""Means over seeds, paired differences with their confidence intervals, and the code behind them. No torch here."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from semifl.intervals import PairedDifference, paired_differences
from semifl.records.directory import RunDirectory, versions_that_differ
from semifl.records.predictions import NAME as PREDICTIONS
from semifl.records.predictions import read_predictions


class Mean(NamedTuple):
    """A mean over seeds; one seed has neither deviation nor interval."""

    mean: float
    deviation: float | None
    low: float | None  # The 95 % interval of the mean (Student's t).
    high: float | None
    seeds: int


class Difference(NamedTuple):
    """a − b over the seeds that both have: the mean and its 95 % interval (Student's t); no interval of one seed."""

    mean: float
    low: float
    high: float
    seeds: int

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0


def paired(a: Mapping[int, float], b: Mapping[int, float]) -> Difference | None:
    """None if no seed was run by both."""
    both = sorted(a.keys() & b.keys())
    if not both:
        return None
    differences = [a[seed] - b[seed] for seed in both]
    mean = statistics.fmean(differences)
    if len(both) == 1:
        return Difference(mean, -math.inf, math.inf, 1)
    half = _half_width(differences)
    return Difference(mean, mean - half, mean + half, len(both))


def on_same_examples(a: Path, b: Path, metric: str) -> PairedDifference | None:
    """Return how much better the kept model of run a is than that of b, if both answered the same test examples."""
    if any(not (path / PREDICTIONS).is_file() for path in (a, b)):
        return None
    ours, theirs = read_predictions(a / PREDICTIONS), read_predictions(b / PREDICTIONS)
    if not np.array_equal(ours.labels, theirs.labels):
        return None
    return paired_differences(ours.models["model"], theirs.models["model"], ours.labels).get(metric)


def mean_of(values: Mapping[int, float], population: bool = False) -> Mean | None:
    """Return the mean over seeds; its deviation is that of the sample, or of the population as the paper prints it."""
    if not values:
        return None
    mean, count = statistics.fmean(values.values()), len(values)
    if count == 1:
        return Mean(mean, None, None, None, 1)
    deviation = (statistics.pstdev if population else statistics.stdev)(values.values())
    half = _half_width(list(values.values()))
    return Mean(mean, deviation, mean - half, mean + half, count)


def mean_text(found: Mean | None) -> str:
    """'91.2 (0.4, n = 5, 90.7 to 91.7)': mean, standard deviation, number of seeds, 95 % interval of the mean."""
    if found is None:
        return ""
    if found.deviation is None:
        return f"{found.mean:.1f} (n = 1)"
    return f"{found.mean:.1f} ({found.deviation:.1f}, n = {found.seeds}, {found.low:.1f} to {found.high:.1f})"


def _half_width(values: Sequence[float]) -> float:
    """Return half of the 95 % interval of a mean (Student's t)."""
    from scipy.stats import t  # here, because it takes longer to import than to use

    return float(t.ppf(0.975, len(values) - 1)) * statistics.stdev(values) / math.sqrt(len(values))


def difference_text(difference: Difference | None) -> str:
    if difference is None:
        return ""
    if difference.seeds == 1:
        return f"{difference.mean:+.1f} (one seed)"
    return f"{difference.mean:+.1f} [{difference.low:+.1f}, {difference.high:+.1f}]"


def mixed_code(cells: Mapping[str, Iterable[Path]]) -> str:
    """Return one sentence if the runs of a cell were made with different code, of semifl or of a person's own."""
    mixed = {cell: found for cell, runs in cells.items() if (found := _versions(runs))}
    if not mixed:
        return ""
    cell, (names, runs) = next(iter(mixed.items()))
    others = f", and so in {len(mixed) - 1} more" if len(mixed) > 1 else ""
    return (
        f"the runs of {cell!r} were made with different code of {' and '.join(names)} ({' | '.join(runs)}){others}: "
        "their mean is that of no one method; move the older runs away and run them again"
    )


def _versions(runs: Iterable[Path]) -> tuple[list[str], list[str]] | None:
    """Return the code that differs between runs, and the runs by version; None if they agree."""
    versions = {path.name: RunDirectory(path).code_versions() for path in runs}
    names = versions_that_differ([each for found in versions.values() for each in found])
    if not names:
        return None
    together: dict[str, list[str]] = {}
    for run, found in versions.items():
        marks = list(dict.fromkeys(str([each.get(name) for name in names]) for each in found))
        together.setdefault(str(marks), []).append(run if len(marks) == 1 else f"{run}, resumed with other code")
    return names, [", ".join(each) for each in together.values()]

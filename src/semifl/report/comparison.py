"""Means over seeds, and paired differences with their confidence intervals. No torch here."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import NamedTuple


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
    from scipy.stats import t  # here, because it takes longer to import than to use

    half = float(t.ppf(0.975, len(both) - 1)) * statistics.stdev(differences) / math.sqrt(len(both))
    return Difference(mean, mean - half, mean + half, len(both))


def summary(values: Mapping[int, float]) -> str:
    """'91.2 (0.4, n = 5)': mean, standard deviation over seeds as the paper's (of the population), how many."""
    if not values:
        return ""
    mean = statistics.fmean(values.values())
    if len(values) == 1:
        return f"{mean:.1f} (n = 1)"
    return f"{mean:.1f} ({statistics.pstdev(values.values()):.1f}, n = {len(values)})"


def difference_text(difference: Difference | None) -> str:
    if difference is None:
        return ""
    if difference.seeds == 1:
        return f"{difference.mean:+.1f} (one seed)"
    return f"{difference.mean:+.1f} [{difference.low:+.1f}, {difference.high:+.1f}]"

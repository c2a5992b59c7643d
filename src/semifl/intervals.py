"""95 % intervals of numbers measured on labeled examples, and of paired differences between two models. No torch.

Numbers are percents. Shares have Wilson's interval, means of shares over classes the one that Zou and Donner's MOVER
makes of Wilson's, areas under the ROC curve DeLong's, F1 and calibration error a bootstrap standard error. A difference
is paired: both models are measured on the same examples.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

Z = 1.959963984540054  # the 97.5 % quantile of the standard normal distribution
CALIBRATION_BINS = 15  # of confidence; the number most papers use
RESAMPLES = 1000  # of a bootstrap
SEED = 0  # fixed, so that the same predictions give the same interval
CHUNK = 100  # resamples in memory at once


class Interval(NamedTuple):
    """A 95 % interval in percent."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"[{self.low:.1f}, {self.high:.1f}]"


class PairedDifference(NamedTuple):
    """How many points one model is better than another on the same examples, with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0

    def __str__(self) -> str:
        return f"{self.value:+.1f} points [{self.low:+.1f}, {self.high:+.1f}]"


def wilson(hits: float, count: float) -> Interval:
    """Return Wilson's score interval of the share `hits / count`."""
    share, z2 = hits / count, Z**2 / count
    middle = (share + z2 / 2) / (1 + z2)
    half = Z / (1 + z2) * math.sqrt(share * (1 - share) / count + z2 / (4 * count))
    return Interval(100 * max(0.0, middle - half), 100 * min(1.0, middle + half))


def of_mean(values: Sequence[float], parts: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Return the interval of the mean of independent estimates from their own (low, high), by MOVER."""
    mean, count = sum(values) / len(values), len(values)
    below = math.sqrt(sum((value - low) ** 2 for value, (low, _) in zip(values, parts, strict=True)))
    above = math.sqrt(sum((high - value) ** 2 for value, (_, high) in zip(values, parts, strict=True)))
    return mean - below / count, mean + above / count


def metric_intervals(probabilities: Floats, labels: Labels) -> dict[str, Interval]:
    """Return the intervals of accuracy, balanced accuracy, AUC, F1 and calibration error, by name.

    Parameters
    ----------
    probabilities : array, shape (n, classes). The model's, one row per example.
    labels : array, shape (n,). The true classes.
    """
    said = probabilities.argmax(axis=1)
    right = said == labels
    return {
        "accuracy": wilson(float(right.sum()), len(labels)),
        "balanced_accuracy": _balanced_interval(right, labels),
        "auc": _auc_interval(probabilities, labels),
        "f1": _f1_interval(said, labels, probabilities.shape[1]),
        "calibration_error": _calibration_interval(probabilities, right),
    }


def paired_differences(ours: Floats, theirs: Floats, labels: Labels) -> dict[str, PairedDifference]:
    """Return, by metric, how much better the first of two models is on the same examples.

    Accuracy has Bonett and Price's interval (2012) of the examples that only one of the two gets right, as in McNemar's
    test; balanced accuracy the same within each class; AUC DeLong's; F1 a paired bootstrap.
    """
    said, other = ours.argmax(axis=1), theirs.argmax(axis=1)
    wins, losses = (said == labels) & (other != labels), (other == labels) & (said != labels)
    present = np.unique(labels)
    of_classes = [_of_discordant(wins[labels == each], losses[labels == each]) for each in present]
    balanced = of_mean([each.value for each in of_classes], [each[1:] for each in of_classes])
    return {
        "accuracy": _of_discordant(wins, losses),
        "balanced_accuracy": PairedDifference(float(np.mean([each.value for each in of_classes])), *balanced),
        "auc": _auc_difference(ours, theirs, labels),
        "f1": _f1_difference(said, other, labels, ours.shape[1]),
    }


def standard_error(metric: str, value: float, confusion: Sequence[Sequence[float]]) -> float:
    """Return the standard error of a metric in percent, from how many examples of each class there were.

    It is never 0, as perfection on a few examples proves little: Laplace's rule is applied. What is a mean over classes
    has the errors of the classes, each taken to have reached `value`.
    """
    matrix = np.asarray(confusion, dtype=float)
    return STANDARD_ERRORS[metric](value, [float(each) for each in matrix.sum(axis=1) if each], matrix)


def _error_of_share(value: float, count: float) -> float:
    share = (value / 100 * count + 1) / (count + 2)
    return 100 * math.sqrt(share * (1 - share) / count)


def _error_of_mean(value: float, counts: Sequence[float]) -> float:
    return math.sqrt(sum(_error_of_share(value, count) ** 2 for count in counts)) / len(counts)


def _error_of_area(value: float, positives: float, negatives: float) -> float:
    """Return the standard error of an area under the ROC curve, after Hanley and McNeil (1982)."""
    if not negatives:
        return 50.0
    pairs = positives * negatives
    area = (value / 100 * pairs + 1) / (pairs + 2)
    one, two = area / (2 - area), 2 * area**2 / (1 + area)
    variance = area * (1 - area) + (positives - 1) * (one - area**2) + (negatives - 1) * (two - area**2)
    return 100 * math.sqrt(max(0.0, variance) / pairs)


def _trials_of_f1(matrix: Any) -> list[float]:
    """F1 is the share of hits in (drawn + said) / 2 of a class."""
    return [float(each) for each in (matrix.sum(axis=0) + matrix.sum(axis=1)) / 2 if each]


# One row for each metric that may decide: a metric without one is an error and not another's formula.
STANDARD_ERRORS: dict[str, Callable[[float, list[float], Any], float]] = {
    "accuracy": lambda value, counts, matrix: _error_of_share(value, sum(counts)),
    "balanced_accuracy": lambda value, counts, matrix: _error_of_mean(value, counts),
    "auc": lambda value, counts, matrix: max(_error_of_area(value, each, sum(counts) - each) for each in counts),
    "f1": lambda value, counts, matrix: _error_of_mean(value, _trials_of_f1(matrix)),
}


def _balanced_interval(right: NDArray[np.bool_], labels: Labels) -> Interval:
    counts = [(int(right[labels == each].sum()), int((labels == each).sum())) for each in np.unique(labels)]
    shares = [100 * hits / count for hits, count in counts]
    return Interval(*of_mean(shares, [wilson(*each) for each in counts]))


def _of_discordant(wins: NDArray[np.bool_], losses: NDArray[np.bool_]) -> PairedDifference:
    count, won, lost = len(wins), int(wins.sum()), int(losses.sum())
    up, down = (won + 1) / (count + 2), (lost + 1) / (count + 2)
    half = Z * math.sqrt((up + down - (up - down) ** 2) / (count + 2))
    low, high = max(-1.0, up - down - half), min(1.0, up - down + half)
    return PairedDifference(100 * (won - lost) / count, 100 * low, 100 * high)


def _auc_parts(probabilities: Floats, labels: Labels) -> tuple[float, Floats]:
    """Return the area, a share, and each example's part of its error: the squares sum to DeLong's variance.

    Of more than two classes the area is the mean over the classes, each against the rest.
    """
    from scipy.stats import rankdata  # here, because it takes longer to import than most commands

    classes = [each for each in np.unique(labels) if (labels != each).any()]
    if probabilities.shape[1] == 2:
        classes = classes[-1:]  # both have the same area
    areas, parts = [], np.zeros(len(labels))
    for each in classes:
        score, inside = probabilities[:, each], labels == each
        ranks, m, n = rankdata(score), int(inside.sum()), int((~inside).sum())
        above = (ranks[inside] - rankdata(score[inside])) / n  # share of the others that rank below it
        below = 1 - (ranks[~inside] - rankdata(score[~inside])) / m
        area = float(above.mean())
        parts[inside] += (above - area) / math.sqrt(m * max(m - 1, 1)) / len(classes)
        parts[~inside] += (below - area) / math.sqrt(n * max(n - 1, 1)) / len(classes)
        areas.append(area)
    return (float(np.mean(areas)) if areas else 0.5), parts


def _auc_interval(probabilities: Floats, labels: Labels) -> Interval:
    """On the scale of log odds, so that it stays between 0 and 100; where nothing varies, by Hanley and McNeil."""
    area, parts = _auc_parts(probabilities, labels)
    error = math.sqrt(float((parts**2).sum()))
    if error == 0 or not 0 < area < 1:
        counts = np.bincount(labels)
        half = Z * max(_error_of_area(100 * area, each, len(labels) - each) for each in counts[counts > 0].tolist())
        return Interval(max(0.0, 100 * area - half), min(100.0, 100 * area + half))
    odds, half = math.log(area / (1 - area)), Z * error / (area * (1 - area))
    low, high = (100 / (1 + math.exp(-max(-700.0, each))) for each in (odds - half, odds + half))
    return Interval(low, high)


def _auc_difference(ours: Floats, theirs: Floats, labels: Labels) -> PairedDifference:
    (area, parts), (other, others) = _auc_parts(ours, labels), _auc_parts(theirs, labels)
    half = 100 * Z * math.sqrt(float(((parts - others) ** 2).sum()))
    value = 100 * (area - other)
    return PairedDifference(value, max(-100.0, value - half), min(100.0, value + half))


def _f1_interval(said: Labels, labels: Labels, classes: int) -> Interval:
    if (said == labels).all():  # nothing varies between resamples; with no mistake F1 is the accuracy
        return wilson(len(labels), len(labels))
    value = 100 * float(_f1(np.ones((1, len(labels))), said, labels, classes)[0])
    error = 100 * _spread(len(labels), lambda counts: _f1(counts, said, labels, classes))
    return Interval(max(0.0, value - Z * error), min(100.0, value + Z * error))


def _f1_difference(said: Labels, other: Labels, labels: Labels, classes: int) -> PairedDifference:
    def difference(counts: Floats) -> Floats:
        return _f1(counts, said, labels, classes) - _f1(counts, other, labels, classes)

    value = 100 * float(difference(np.ones((1, len(labels))))[0])
    half = 100 * Z * _spread(len(labels), difference)
    return PairedDifference(value, max(-100.0, value - half), min(100.0, value + half))


def _calibration_interval(probabilities: Floats, right: NDArray[np.bool_]) -> Interval:
    confidence = probabilities.max(axis=1)
    bins = np.clip(np.ceil(confidence * CALIBRATION_BINS), 1, CALIBRATION_BINS).astype(int) - 1
    gaps = np.eye(CALIBRATION_BINS)[bins] * (right - confidence)[:, None]

    def error_of(counts: Floats) -> Floats:
        return np.asarray(np.abs(counts @ gaps).sum(axis=1) / len(right))

    value = 100 * float(error_of(np.ones((1, len(right))))[0])
    half = 100 * Z * _spread(len(right), error_of)
    return Interval(max(0.0, value - half), min(100.0, value + half))


def _f1(counts: Floats, said: Labels, labels: Labels, classes: int) -> Floats:
    """Return the mean F1 over classes as a share, of each row of `counts`: how often each example is drawn."""
    is_said, is_there = np.eye(classes)[said], np.eye(classes)[labels]
    either = counts @ (is_said + is_there)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.nanmean(2 * (counts @ (is_said * is_there)) / either, axis=1))


def _spread(examples: int, statistic: Callable[[Floats], Floats]) -> float:
    """Return the bootstrap standard error of a statistic of resampled examples."""
    return float(np.std(np.concatenate([statistic(counts) for counts in _resamples(examples)]), ddof=1))


def _resamples(examples: int) -> Iterator[Floats]:
    rng = np.random.default_rng(SEED)
    for _ in range(RESAMPLES // CHUNK):
        yield rng.multinomial(examples, np.full(examples, 1 / examples), size=CHUNK).astype(np.float64)

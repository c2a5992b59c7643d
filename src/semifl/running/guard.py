"""The server is never worse off: with some labels held out it judges what the clients brought, and can go back.

In every round the model that is tested (aggregated, then fine-tuned) is compared with the best one so far. If it does
clearly worse, training goes on from that best one. In the end the clients' model must beat a labels-only model on the
labels held out, by more than chance; otherwise a labels-only model trained on *all* labels is kept.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from torch import Tensor

from semifl.learning.batchnorm import BatchNormStats
from semifl.learning.evaluation import Score
from semifl.learning.weights import Snapshot, Weights
from semifl.records.metrics import WORDS, Metric

# What is kept in the end.
OF_CLIENTS, OF_LABELS = "the clients' model", "a labels-only model trained on all labels"


class Guard(NamedTuple):
    """The best model so far by the labels held out, and how often the run has gone back to it."""

    weights: Weights
    value: float  # of the metric that decides, in percent, on the labels held out
    fallbacks: int
    stats: BatchNormStats | None = None  # that go with the weights; older checkpoints have none


def first_guard(weights: Weights) -> Guard:
    return Guard(weights, 0.0, 0)


def judge(guard: Guard, tested: Snapshot, score: Score, metric: Metric, state: Any, method: Any) -> tuple[Any, Guard]:
    """The State to go on with, and what is remembered."""
    value: float = getattr(score, metric)
    if value >= guard.value:
        return state, guard._replace(weights=tested.weights, value=value, stats=tested.stats)
    if value >= guard.value - 2 * standard_error(guard.value, score, metric):
        return state, guard
    return method.start(guard.weights), guard._replace(fallbacks=guard.fallbacks + 1)


def beats(score: Score, baseline: Score, metric: Metric) -> bool:
    """Whether a model does better than another on the same labels, by more than one standard error."""
    reached: float = getattr(baseline, metric)
    return bool(getattr(score, metric) > reached + standard_error(reached, baseline, metric))


def standard_error(value: float, score: Score, metric: Metric) -> float:
    """Of a metric in percent that was measured on as many labels as `score` was; never 0, as perfection proves little.

    What is a mean over classes has the errors of the classes, which are independent of each other, or for AUC may not
    be; each is taken to have reached `value`.
    """
    per_class = [count for count in score.confusion.sum(dim=1).tolist() if count]
    if metric == "accuracy":
        return _of_a_share(value, score.count)
    if metric == "auc":
        return max(_of_an_area(value, count, score.count - count) for count in per_class)
    trials = per_class if metric == "balanced_accuracy" else _trials(score.confusion)
    return math.sqrt(sum(_of_a_share(value, count) ** 2 for count in trials)) / len(trials)


def _of_a_share(percent: float, count: float) -> float:
    share = (percent / 100 * count + 1) / (count + 2)  # Laplace's
    return 100 * math.sqrt(share * (1 - share) / count)


def _of_an_area(percent: float, positives: int, negatives: int) -> float:
    """Of an area under the ROC curve, after Hanley and McNeil (1982)."""
    if not negatives:
        return 50.0
    pairs = positives * negatives
    area = (percent / 100 * pairs + 1) / (pairs + 2)
    one, two = area / (2 - area), 2 * area**2 / (1 + area)
    variance = area * (1 - area) + (positives - 1) * (one - area**2) + (negatives - 1) * (two - area**2)
    return 100 * math.sqrt(max(0.0, variance) / pairs)


def _trials(confusion: Tensor) -> list[float]:
    """F1 is the share of hits in (drawn + said) / 2 of a class."""
    either = (confusion.sum(dim=0) + confusion.sum(dim=1)) / 2
    return [count for count in either.tolist() if count]


def what_it_can_tell(held_out: Score, metric: Metric) -> str:
    """A sentence on how sharp the guard's eyes are."""
    width = 2 * standard_error(80.0, held_out, metric)
    return (
        f"the guard has {held_out.count} labels held out and tells {WORDS[metric]} to within about ±{width:.0f} "
        "points: what is smaller it cannot see"
    )

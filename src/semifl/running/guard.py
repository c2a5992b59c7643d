"""The server is never worse off: with some labels held out it judges what the clients brought, and can go back.

In every round the model that is tested (aggregated, then fine-tuned) is compared with the best one so far. If it does
clearly worse, training goes on from that best one. In the end the clients' model must beat a labels-only model on the
labels held out, by more than chance; otherwise a labels-only model trained on *all* labels is kept.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from semifl.intervals import standard_error
from semifl.learning.batchnorm import BatchNormStats
from semifl.learning.evaluation import Score
from semifl.learning.weights import Snapshot, Weights
from semifl.records.metrics import WORDS, Metric

OF_CLIENTS = "the clients' model"  # what is kept in the end, or records.verdict.OF_LABELS


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
    if value >= guard.value - 2 * _error(guard.value, score, metric):
        return state, guard
    return method.start(guard.weights), guard._replace(fallbacks=guard.fallbacks + 1)


def beats(score: Score, baseline: Score, metric: Metric) -> bool:
    """Whether a model does better than another on the same labels, by more than one standard error."""
    reached: float = getattr(baseline, metric)
    return bool(getattr(score, metric) > reached + _error(reached, baseline, metric))


def _error(value: float, score: Score, metric: Metric) -> float:
    return standard_error(metric, value, score.confusion.tolist())


def what_it_can_tell(held_out: Score, metric: Metric) -> str:
    """A sentence on how sharp the guard's eyes are."""
    width = 2 * _error(80.0, held_out, metric)
    return (
        f"the guard has {held_out.count} labels held out and tells {WORDS[metric]} to within about ±{width:.0f} "
        "points: what is smaller it cannot see"
    )

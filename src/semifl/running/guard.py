"""The server is never worse off: with some labels held out it judges what the clients brought, and can go back.

In every round the model that is tested (aggregated, then fine-tuned) is compared with the best one so far. If it does
clearly worse, training goes on from that best one. In the end the clients' model must beat a labels-only model on the
labels held out, by more than chance; otherwise a labels-only model trained on *all* labels is kept.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from semifl.learning.evaluation import Score
from semifl.learning.weights import Snapshot, Weights


class Guard(NamedTuple):
    """The best model so far by the labels held out, and how often the run has gone back to it."""

    weights: Weights
    accuracy: float  # percent of the labels held out
    fallbacks: int


def first_guard(weights: Weights) -> Guard:
    return Guard(weights, 0.0, 0)


def judge(guard: Guard, tested: Snapshot, score: Score, state: Any, method: Any) -> tuple[Any, Guard]:
    """The State to go on with, and what is remembered."""
    if score.accuracy >= guard.accuracy:
        return state, guard._replace(weights=tested.weights, accuracy=score.accuracy)
    if score.accuracy >= guard.accuracy - 2 * standard_error(guard.accuracy, score.count):
        return state, guard
    return method.start(guard.weights), guard._replace(fallbacks=guard.fallbacks + 1)


def beats(score: Score, baseline: Score) -> bool:
    """Whether a model does better than another on the same labels, by more than one standard error."""
    return score.accuracy > baseline.accuracy + standard_error(baseline.accuracy, baseline.count)


def standard_error(accuracy: float, count: int) -> float:
    """Of an accuracy in percent that was measured on `count` pictures; never 0, as a perfect score proves little."""
    share = (accuracy / 100 * count + 1) / (count + 2)
    return 100 * math.sqrt(share * (1 - share) / count)


def what_it_can_tell(count: int) -> str:
    """A sentence on how sharp the guard's eyes are."""
    width = 2 * standard_error(80.0, count)
    return (
        f"the guard has {count} labels held out and tells accuracies to within about ±{width:.0f} points: "
        "what is smaller it cannot see"
    )

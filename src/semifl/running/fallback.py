"""The health policy "fallback": a run that goes astray goes on from the last model that was sound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from semifl.configuration.health import HARMLESS
from semifl.learning.weights import Snapshot, Weights
from semifl.records.metrics import Metric
from semifl.records.record import Measured, number


class Sound(NamedTuple):
    """The model to go back to: the best on held-out labels, or where there are none the last that showed no sign."""

    weights: Weights
    round: int
    value: float | None  # of the metric that decides, on labels held out


def remembered(
    sound: Sound | None, tested: Snapshot, measured: Measured, alerts: Sequence[str], metric: Metric
) -> Sound | None:
    """What to go back to after this round."""
    if set(alerts) - set(HARMLESS):
        return sound
    named: dict[str, Any] = {**measured}
    value = number(named.get(f"validation_{metric}"))
    if sound is not None and value is not None and sound.value is not None and value < sound.value:
        return sound
    return Sound(tested.weights, measured["round"], value)

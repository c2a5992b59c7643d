"""The numbers that say how good a model is: which may decide, and what people call them. No torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

Metric = Literal["accuracy", "balanced_accuracy", "auc", "f1"]  # any of them may decide
METRICS: tuple[Metric, ...] = get_args(Metric)
WORDS = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "auc": "AUC",
    "f1": "F1",
    "calibration_error": "calibration error",
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "decision_threshold": "decision threshold",
}
MEANINGS = {
    "accuracy": "Share of test pictures in the right class",
    "balanced_accuracy": "Mean over the classes of the share of their test pictures in the right class",
    "auc": "How often a test picture of a class gets a higher probability of it than one of another class",
    "f1": "Mean over the classes of the harmonic mean of precision and recall",
}
LOWER_IS_BETTER = ("calibration_error", "bytes_up", "bytes_down", "seconds")
OF_A_MODEL = tuple(WORDS)  # what is measured of every model; the last three only where there are two classes


def metric_of(settings: Mapping[str, Any]) -> Metric:
    """The one that decides, by a run's configuration; runs of earlier versions have none and go by accuracy."""
    named = settings.get("metric", "accuracy")
    return next((each for each in METRICS if each == named), "accuracy")


def ranked(name: str, value: float) -> float:
    """A value of result.json for sorting: more is better, whatever the measure."""
    return -value if name.endswith(LOWER_IS_BETTER) else value


def of_the_kept(summary: Mapping[str, Any]) -> str:
    """What stands before the names of the kept model's numbers in result.json; an earlier version did not say."""
    return "best_" if summary.get("kept") == "best" else ""


def said(name: str, value: float | None) -> str:
    """A number and its unit, for people."""
    if value is None:
        return "–"
    return said_probability(value) if name.endswith("decision_threshold") else f"{value:.1f} %"


def said_probability(value: float) -> str:
    """Three digits that count, from the nearer end: 0.0025 is not 0.00, and 0.9975 is not 1.00."""
    if 0 < value < 1e-4:
        return f"{value:.3g}"
    nearer = min(value, 1 - value)
    return f"{value:.{2 - math.floor(math.log10(nearer)) if nearer > 0 else 3}f}"


def shown(record: Mapping[str, Any], metric: Metric) -> float | None:
    """A round's value of the metric on the test pictures, if it was tested; an earlier version's has its accuracy."""
    value = record.get(metric, record.get("accuracy"))
    return None if value is None else float(value)


def standing(record: Mapping[str, Any], best: float | None, metric: Metric) -> str:
    """How good a round's model is, and the best so far, for people."""
    value = shown(record, metric)
    now = "not tested" if value is None else f"{WORDS[metric]} {said(metric, value)}"
    return now if best is None else f"{now} (best {best:.1f})"


def best_shown(records: Iterable[Mapping[str, Any]], metric: Metric) -> float | None:
    """The best of rounds, as far as they were tested."""
    return max((value for each in records if (value := shown(each, metric)) is not None), default=None)

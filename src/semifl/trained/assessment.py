"""How well a trained model does on labeled pictures: by class, what it confuses, whether it knows when it errs."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from semifl.learning.evaluation import Score, blocks, score
from semifl.trained.modelfile import TrainedModel
from semifl.trained.prediction import logits_of

BINS = 15  # of confidence; the number most papers use


class ClassScore(NamedTuple):
    """Percent; None where nothing was there to count."""

    precision: float | None  # of the pictures that the model gave to this class, those that belong there
    recall: float | None  # of the pictures of this class, those that it found
    pictures: int


class Assessment(NamedTuple):
    score: Score
    classes: dict[str, ClassScore]
    calibration_error: float  # percent; mean gap between confidence and accuracy

    def facts(self) -> dict[str, Any]:
        return {
            "pictures": self.score.count,
            "accuracy": self.score.accuracy,
            "balanced_accuracy": self.score.balanced_accuracy,
            "loss": self.score.loss,
            "calibration_error": self.calibration_error,
            "classes": {name: each._asdict() for name, each in self.classes.items()},
            "confusion": self.score.confusion.tolist(),
        }


def assess(model: TrainedModel, images: Tensor, labels: Tensor) -> Assessment:
    logits = torch.cat([logits_of(model, images[block]) for block in blocks(len(labels))])
    found = score(logits, labels)
    confidence, guess = logits.softmax(dim=1).max(dim=1)
    return Assessment(
        found,
        class_scores(found.confusion, model.facts.class_names),
        100 * calibration_error(confidence, guess == labels),
    )


def class_scores(confusion: Tensor, names: tuple[str, ...]) -> dict[str, ClassScore]:
    right, there, said = confusion.diagonal(), confusion.sum(dim=1), confusion.sum(dim=0)
    return {
        name: ClassScore(_percent(right[i], said[i]), _percent(right[i], there[i]), int(there[i]))
        for i, name in enumerate(names)
    }


def calibration_error(confidence: Tensor, right: Tensor) -> float:
    """Expected calibration error: Σ over bins of share × |accuracy − mean confidence|."""
    bins = (confidence * BINS).ceil().long().clamp(1, BINS) - 1
    gaps = torch.zeros(BINS, dtype=torch.float64).index_add_(0, bins, right.double() - confidence.double())
    return float(gaps.abs().sum() / len(confidence))


def _percent(part: Tensor, whole: Tensor) -> float | None:
    return 100 * int(part) / int(whole) if int(whole) else None

"""How well a trained model does on labeled pictures: by class, what it confuses, whether it knows when it errs."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from semifl.errors import UserError
from semifl.intervals import Interval, wilson
from semifl.learning import metrics
from semifl.learning.evaluation import Score, blocks, score
from semifl.learning.metrics import EVEN, Decision
from semifl.records.metrics import METRICS
from semifl.records.record import number
from semifl.trained.modelfile import TrainedModel
from semifl.trained.prediction import Rule, logits_of


class ClassScore(NamedTuple):
    """Percent; None where nothing was there to count."""

    precision: float | None  # of the pictures that the model gave to this class, those that belong there
    recall: float | None  # of the pictures of this class, those that it found: its sensitivity
    specificity: float | None  # of the pictures of other classes, those that it did not give to this one
    f1: float | None
    pictures: int


class Assessment(NamedTuple):
    """`confusion`, and what is told of each class, are of what the model says: of two classes at the threshold."""

    score: Score
    confusion: Tensor
    classes: dict[str, ClassScore]
    positive: str  # empty but for two classes
    decision: Decision | None  # of two classes

    def numbers(self) -> dict[str, float | None]:
        """What is measured of all pictures; None where there are none to tell it by.

        Runs have test pictures of every class. Here a person may have brought those of one alone.
        """
        measured = {name: number(getattr(self.score, name)) for name in (*METRICS, "calibration_error")}
        if self.decision:
            measured |= {name: number(getattr(self.decision, name)) for name in ("sensitivity", "specificity")}
        one_class = len(set(self.score.labels.tolist())) < 2
        return measured | ({"auc": None} if one_class else {})  # which can be told from nothing

    def intervals(self) -> dict[str, Interval]:
        """Return the 95 % intervals of `numbers`, by name."""
        found = dict(self.score.intervals)
        if self.decision:
            places = {"sensitivity": list(self.classes).index(self.positive)}
            places["specificity"] = 1 - places["sensitivity"]
            rows = self.confusion.tolist()
            found |= {name: wilson(rows[at][at], sum(rows[at])) for name, at in places.items() if sum(rows[at])}
        return {name: ends for name, ends in found.items() if self.numbers().get(name) is not None}

    def facts(self) -> dict[str, Any]:
        threshold = {"decision_threshold": self.decision.threshold, "positive": self.positive} if self.decision else {}
        return {
            "pictures": self.score.count,
            **self.numbers(),
            **threshold,
            "intervals": {name: list(ends) for name, ends in self.intervals().items()},
            "loss": number(self.score.loss),
            "classes": {name: each._asdict() for name, each in self.classes.items()},
            "confusion": self.confusion.tolist(),
        }


def assess(model: TrainedModel, images: Tensor, labels: Tensor, threshold: float | None = None) -> Assessment:
    """With a decision threshold of one's own, or the one that was chosen when the model was trained."""
    logits = torch.cat([logits_of(model, images[block]) for block in blocks(len(labels))])
    found, names = score(logits, labels), model.facts.class_names
    positive, decision, confusion = "", None, found.confusion
    if len(names) == 2:
        place = positive_place(model)
        positive, decision = names[place], found.decision(place, chosen_threshold(model, threshold))
        confusion = confusion_by(Rule(place, decision.threshold), found)
    elif threshold is not None:
        raise UserError(f"a decision threshold is for two classes, and this model knows {len(names)}")
    return Assessment(found, confusion, class_scores(confusion, names), positive, decision)


def confusion_by(rule: Rule, found: Score) -> Tensor:
    """Of two classes how often class i (row) was taken for class j (column) by another rule than the likelier class."""
    return torch.bincount(2 * found.labels + rule.labels(found.probabilities), minlength=4).view(2, 2)


def positive_place(model: TrainedModel) -> int:
    """Of two classes the one whose finding counts as positive."""
    names = model.facts.class_names
    return names.index(model.about["positive"]) if model.about.get("positive") in names else len(names) - 1


def chosen_threshold(model: TrainedModel, wanted: float | None = None) -> float:
    """The one that is wanted, that the model was trained to have, or an even one."""
    known = number(model.about.get("decision_threshold"))
    return wanted if wanted is not None else EVEN if known is None else known


def class_scores(confusion: Tensor, names: tuple[str, ...]) -> dict[str, ClassScore]:
    right, there, said = confusion.diagonal(), confusion.sum(dim=1), confusion.sum(dim=0)
    total = confusion.sum()
    elsewhere, spared = total - there, total - there - said + right
    f1 = metrics.class_f1(confusion)
    return {
        name: ClassScore(
            _percent(right[i], said[i]),
            _percent(right[i], there[i]),
            _percent(spared[i], elsewhere[i]),
            f1[i],
            int(there[i]),
        )
        for i, name in enumerate(names)
    }


def _percent(part: Tensor, whole: Tensor) -> float | None:
    return 100 * int(part) / int(whole) if int(whole) else None

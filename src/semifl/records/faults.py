"""What can be wrong with a trained model: one declared list, from its answers to the test pictures. No torch.

result.json and the model file hold what was found; report, terminal, model card, `predict` and `export` repeat it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from semifl.intervals import PairedDifference, wilson
from semifl.records.metrics import WORDS, Metric, said_probability
from semifl.words import listed

ENOUGH = 5  # test pictures of a class, before anything is said about it
OF_OTHERS = 0.9  # share of the other classes' pictures that are given to one class: the model has collapsed to it
APART = 20.0  # points between sensitivity and specificity
SELDOM = 0.5  # of the mean over classes: a class that is hardly ever found
BETTER = 10.0  # points by which another rule or model finds a class more often, to be worth saying
GOOD_AUC = 75.0  # percent, from which another threshold can separate two classes
OFTEN_WRONG = 80.0  # percent of confident pseudo-labels that are right, below which they are the cause


class Fault(NamedTuple):
    """Something wrong with a trained model."""

    name: str  # a key of FAULTS
    sentence: str
    remedy: str


class Threshold(NamedTuple):
    """A decision threshold for two classes, and what it makes of the test pictures."""

    threshold: float
    sensitivity: float  # in percent
    specificity: float


@dataclass(frozen=True)
class FinalModel:
    """All that the faults of a model are found by."""

    class_names: Sequence[str]
    confusion: Sequence[Sequence[int]]  # test pictures, true class by predicted class, by the rule the model answers by
    metric: Metric
    auc: float  # in percent
    positive: int  # index of the positive class, of two
    best_threshold: Threshold | None  # of two classes: the one with the highest sensitivity + specificity
    labels: Sequence[int]  # the server's, by class
    alone: Sequence[Sequence[int]] | None  # confusion matrix of the better labels-only model
    difference: PairedDifference | None  # from that model, in the metric that decides
    method: str
    client_epochs: int | None
    pseudo_accuracy: float | None = None  # percent of confident pseudo-labels that are right, in a simulation
    is_of_labels: bool = False  # whether the guard has kept a labels-only model

    def recall(self, label: int, matrix: Sequence[Sequence[int]] | None = None) -> float | None:
        """Return the percent of a class's test pictures that are found; None where there are none."""
        row = (self.confusion if matrix is None else matrix)[label]
        return 100 * row[label] / sum(row) if sum(row) else None

    def others_taken(self, label: int, matrix: Sequence[Sequence[int]]) -> float:
        """Return the share of the other classes' test pictures that are given to `label`."""
        rows = [row for place, row in enumerate(matrix) if place != label]
        return sum(row[label] for row in rows) / max(sum(map(sum, rows)), 1)

    def name(self, label: int) -> str:
        return class_name(self.class_names[label])


def class_name(name: str) -> str:
    """Return the name of a class as it stands in a sentence: '1' would be read as a number."""
    return name if any(letter.isalpha() for letter in name) else f"class {name}"


def find_faults(model: FinalModel) -> list[Fault]:
    """Return what is wrong, the gravest first; of those that say the same of the classes only the first."""
    found, of_classes = [], False
    for name, (check, is_of_classes) in FAULTS.items():
        if is_of_classes and of_classes:
            continue
        for sentence, remedy in check(model):
            found.append(Fault(name, sentence, remedy))
            of_classes = of_classes or is_of_classes
    return found


def _says_one_class(model: FinalModel) -> Iterator[tuple[str, str]]:
    total = sum(map(sum, model.confusion))
    for label in range(len(model.confusion)):
        said = sum(row[label] for row in model.confusion)
        others = total - sum(model.confusion[label])
        taken = model.others_taken(label, model.confusion)
        if others < ENOUGH or taken < OF_OTHERS:
            continue
        name = model.name(label)
        share = f"for every test picture ({total} of {total})"
        if said < total:
            share = f"for nearly every test picture ({said} of {total}), also for {100 * taken:.0f} % of other classes"
        fewer = [place for place in range(len(model.confusion)) if place != label]
        yield f"The model says {name} {share}: do not use it.", _for_missed(model, fewer)


def _never_says_a_class(model: FinalModel) -> Iterator[tuple[str, str]]:
    never = [
        label
        for label, row in enumerate(model.confusion)
        if sum(row) >= ENOUGH and not sum(each[label] for each in model.confusion)
    ]
    if never:
        names = listed([model.name(label) for label in never])
        pictures = sum(sum(model.confusion[label]) for label in never)
        yield f"The model never says {names}, which {pictures} test pictures are.", _for_missed(model, never)


def _differs_between_two(model: FinalModel) -> Iterator[tuple[str, str]]:
    if len(model.confusion) != 2:
        return
    places = (model.positive, 1 - model.positive)
    found, spared = (model.recall(place) for place in places)
    if found is None or spared is None or abs(found - spared) < APART or _overlap(model, places):
        return
    more, less = sorted(places, key=lambda place: -(model.recall(place) or 0.0))
    sentence = (
        f"The model finds {model.recall(more):.0f} % of {model.name(more)} but only "
        f"{model.recall(less):.0f} % of {model.name(less)}."
    )
    best = model.best_threshold
    if best and model.auc >= GOOD_AUC and min(best[1:]) >= min(found, spared) + BETTER:
        at = said_probability(best.threshold)
        yield (
            sentence,
            (
                f"Let it say {model.name(model.positive)} from a probability of {at} on: then it finds "
                f"{best.sensitivity:.0f} % of {model.name(model.positive)} and {best.specificity:.0f} % of "
                f"{model.name(1 - model.positive)} of the same test pictures, which is flattering, as it was chosen on "
                f"them. Use 'semifl predict RUN PICTURES --threshold {at}', and check it on other labeled pictures by "
                f"'semifl evaluate RUN FOLDER --threshold {at}'."
            ),
        )
    else:
        yield sentence, _for_missed(model, [less])


def _overlap(model: FinalModel, places: tuple[int, int]) -> bool:
    one, other = (wilson(model.confusion[place][place], sum(model.confusion[place])) for place in places)
    return one.low <= other.high and other.low <= one.high


def _hardly_finds_a_class(model: FinalModel) -> Iterator[tuple[str, str]]:
    if len(model.confusion) == 2:
        return
    found = {
        label: recall
        for label, row in enumerate(model.confusion)
        if sum(row) >= ENOUGH and (recall := model.recall(label)) is not None
    }
    mean = statistics.fmean(found.values()) if found else 0.0
    weak = sorted((label for label in found if found[label] < SELDOM * mean), key=lambda label: found[label])
    weak = [label for label in weak if wilson(model.confusion[label][label], sum(model.confusion[label])).high < mean]
    if weak:
        each = listed([f"{found[label]:.0f} % of {model.name(label)}" for label in weak])
        yield f"The model finds only {each}; of a class on average {mean:.0f} %.", _for_missed(model, weak)


def _worse_than_labels_alone(model: FinalModel) -> Iterator[tuple[str, str]]:
    if model.difference and model.difference.high < 0 and not model.is_of_labels:
        remedy = _for_clients(model)
        if model.pseudo_accuracy is not None and model.pseudo_accuracy < OFTEN_WRONG:
            wrong = f"Of the confident pseudo-labels only {model.pseudo_accuracy:.0f} % were right"
            remedy = (
                f'{wrong}: start from a better model (model.name = "pretrained" for photographs), or {_lower(remedy)}'
            )
        yield f"The model is worse than labels alone: {WORDS[model.metric]} {model.difference}.", remedy


def _for_missed(model: FinalModel, missed: Sequence[int]) -> str:
    """Return the remedy for classes that the model misses: labels only where labels are what is missing."""
    names = listed([model.name(label) for label in missed])
    if model.alone and not model.is_of_labels:
        ours = [model.recall(label) or 0.0 for label in missed]
        theirs = [model.recall(label, model.alone) or 0.0 for label in missed]
        if (reach := statistics.fmean(theirs)) >= statistics.fmean(ours) + BETTER:
            found = f"Labels alone find {reach:.0f} % of {names}, so more labels are not what it lacks."
            return f"{found} {_for_clients(model)}"
    have = sum(model.labels[label] for label in missed)
    if model.alone or model.is_of_labels:
        return f"Labels alone do no better there: label more pictures of {names} (the server has {have})."
    return f"{_for_clients(model)} If that does not help, label more pictures of {names} (the server has {have})."


def _for_clients(model: FinalModel) -> str:
    """Return what makes clients do less harm."""
    if model.method != "balanced":
        return 'Take method.name = "balanced", which is made for uneven sites.'
    if (model.client_epochs or 0) > 1:
        return f"Let fewer epochs pass at the clients: method.client_epochs = 1 (now {model.client_epochs})."
    return "Hold out labels that judge the clients' work: data.validation = 0.2 and guard = true."


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


# The gravest first; whether it is about which classes are said: of those a model has one.
FAULTS: dict[str, tuple[Callable[[FinalModel], Iterator[tuple[str, str]]], bool]] = {
    "one class": (_says_one_class, True),
    "class never predicted": (_never_says_a_class, True),
    "uneven classes": (_differs_between_two, True),
    "class seldom found": (_hardly_finds_a_class, True),
    "worse than labels only": (_worse_than_labels_alone, False),
}

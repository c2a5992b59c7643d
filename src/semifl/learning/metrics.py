"""How good probabilities are: ranking, F1, calibration, and what follows from a decision threshold. In percent."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from semifl.intervals import CALIBRATION_BINS

EVEN = 0.5  # the threshold where no label was held out to choose another


class Decision(NamedTuple):
    """Of two classes the positive one is said from a probability of `threshold` on."""

    threshold: float
    sensitivity: float  # percent of the positive pictures that are called positive
    specificity: float  # percent of the negative ones that are called negative


class Reliability(NamedTuple):
    """One bin of confidence."""

    pictures: int
    confidence: float  # mean, in percent
    accuracy: float


def auc(probabilities: Tensor, labels: Tensor) -> float:
    """Area under the ROC curve: how often a picture of a class gets a higher probability of it than another one.

    The mean over the classes of which there are pictures, each against the rest; of two classes both have the same.
    """
    from sklearn.metrics import roc_auc_score  # here, because it takes longer to import than most commands

    truth = torch.nn.functional.one_hot(labels, probabilities.shape[1])
    told_apart = (truth.sum(dim=0) > 0) & (truth.sum(dim=0) < len(labels))
    if not bool(told_apart.any()):
        return 50.0  # one class alone can be told from nothing
    if probabilities.shape[1] == 2:
        told_apart = torch.tensor([False, True])
    return 100 * float(roc_auc_score(truth[:, told_apart].numpy(), probabilities[:, told_apart].numpy()))


def class_f1(confusion: Tensor) -> list[float | None]:
    """Of each class the harmonic mean of precision and recall; None of one that nobody drew and nobody said."""
    right, either = confusion.diagonal(), confusion.sum(dim=0) + confusion.sum(dim=1)
    return [200 * hits / total if total else None for hits, total in zip(right.tolist(), either.tolist(), strict=True)]


def f1(confusion: Tensor) -> float:
    """The mean over classes."""
    known = [value for value in class_f1(confusion) if value is not None]
    return sum(known) / len(known)


def reliability(probabilities: Tensor, labels: Tensor) -> list[Reliability]:
    """Pictures by how sure the model is of them, and how often it is right; empty bins are left out."""
    confidence, guess = probabilities.max(dim=1)
    right = (guess == labels).double()
    bins = (confidence * CALIBRATION_BINS).ceil().long().clamp(1, CALIBRATION_BINS) - 1
    found = []
    for place in sorted(set(bins.tolist())):
        inside = bins == place
        means = (100 * float(each[inside].double().mean()) for each in (confidence, right))
        found.append(Reliability(int(inside.sum()), *means))
    return found


def calibration_error(probabilities: Tensor, labels: Tensor) -> float:
    """Expected calibration error: Σ over bins of share × |accuracy − mean confidence|."""
    bins = reliability(probabilities, labels)
    return sum(each.pictures * abs(each.accuracy - each.confidence) for each in bins) / len(labels)


def decide(positive: Tensor, is_positive: Tensor, threshold: float) -> Decision:
    """What a threshold on the probability of the positive class makes of labeled pictures."""
    said = positive >= threshold
    found, spared = said[is_positive].double().mean(), (~said[~is_positive]).double().mean()
    return Decision(threshold, 100 * float(found), 100 * float(spared))


def best_threshold(positive: Tensor, is_positive: Tensor) -> float:
    """The threshold with the highest sensitivity + specificity (Youden), in the middle between two probabilities.

    Of several that are equally good the one closest to a half.
    """
    if bool(is_positive.all()) or not bool(is_positive.any()):
        return EVEN  # nothing to weigh
    values = np.unique(positive.numpy())
    candidates = [EVEN, *((values[1:] + values[:-1]) / 2).tolist()]
    decisions = [decide(positive, is_positive, each) for each in candidates]
    best = max(each.sensitivity + each.specificity for each in decisions)
    good = [each.threshold for each in decisions if each.sensitivity + each.specificity > best - 1e-9]
    return min(good, key=lambda each: abs(each - EVEN))

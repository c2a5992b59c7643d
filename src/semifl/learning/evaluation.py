"""Scores of a model on labeled pictures, in fixed blocks reduced in order: bits never depend on who computed them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from semifl.intervals import Interval, metric_intervals
from semifl.learning import metrics

BLOCK = 250  # pictures per batch of statistics, and per piece of work in evaluation
SLICE_PIXELS = 50 * 32 * 32  # per batch of pure inference: small enough for the cache, which makes it 1.4 times faster


def blocks(count: int, size: int = BLOCK) -> list[slice]:
    """Cut `count` pictures into blocks; a last one of a single picture joins the one before, for BatchNorm's sake."""
    starts = list(range(0, count, size))
    if len(starts) > 1 and count - starts[-1] == 1:
        starts.pop()
    return [slice(start, stop) for start, stop in pairwise([*starts, count])]


def slices(count: int, size: int) -> list[slice]:
    """Cut `count` pictures of `size` pixels width into batches for inference; no picture depends on its neighbours."""
    return blocks(count, max(1, min(BLOCK, SLICE_PIXELS // size**2)))


@dataclass(frozen=True)
class Score:
    """Of pictures: the sum of their cross-entropies, how often class i (row) was taken for class j (column), and what
    the model made of each."""

    loss_sum: float
    confusion: Tensor  # int64 [classes, classes]
    probabilities: Tensor  # float64 [n, classes]
    labels: Tensor  # int64 [n]

    def __add__(self, other: Score) -> Score:
        return Score(
            self.loss_sum + other.loss_sum,
            self.confusion + other.confusion,
            torch.cat([self.probabilities, other.probabilities]),
            torch.cat([self.labels, other.labels]),
        )

    @property
    def count(self) -> int:
        return int(self.confusion.sum())

    @property
    def loss(self) -> float:
        return self.loss_sum / self.count

    @property
    def accuracy(self) -> float:
        """Percent of pictures in the right class."""
        return 100 * int(self.confusion.diagonal().sum()) / self.count

    @property
    def balanced_accuracy(self) -> float:
        """Percent, as the mean over the classes present of each class's own accuracy."""
        per_class = self.confusion.sum(dim=1)
        present = per_class > 0
        return float(100 * (self.confusion.diagonal()[present].double() / per_class[present]).mean())

    @cached_property
    def auc(self) -> float:
        return metrics.auc(self.probabilities, self.labels)

    @property
    def f1(self) -> float:
        return metrics.f1(self.confusion)

    @property
    def calibration_error(self) -> float:
        return metrics.calibration_error(self.probabilities, self.labels)

    @cached_property
    def intervals(self) -> dict[str, Interval]:
        """95 % intervals of the metrics and the calibration error, by name."""
        return metric_intervals(self.probabilities.numpy(), self.labels.numpy())

    def decision(self, positive: int, threshold: float) -> metrics.Decision:
        """Of two classes, with the probability from which on `positive` is said."""
        return metrics.decide(self.probabilities[:, positive], self.labels == positive, threshold)

    def best_threshold(self, positive: int) -> float:
        return metrics.best_threshold(self.probabilities[:, positive], self.labels == positive)


def score(logits: Tensor, labels: Tensor) -> Score:
    classes = logits.shape[1]
    loss_sum = float(F.cross_entropy(logits, labels, reduction="sum"))
    pairs = torch.bincount(labels * classes + logits.argmax(dim=1), minlength=classes**2)
    shares = logits.double().softmax(dim=1)
    # A model that has diverged says nothing: every class is as likely as the others.
    shares = torch.where(shares.isfinite().all(dim=1, keepdim=True), shares, 1 / classes)
    return Score(loss_sum, pairs.reshape(classes, classes).cpu(), shares.cpu(), labels.cpu().clone())

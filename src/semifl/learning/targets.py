"""Pseudo-labels from a model's output."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class PseudoLabels(NamedTuple):
    """For each picture the most likely class and how likely the model finds it."""

    labels: Tensor
    confidence: Tensor

    def confident(self, threshold: float) -> Tensor:
        """Which labels to keep: confidence ≥ τ; 0 keeps everything, 1 keeps nothing (a softmax can round to 1)."""
        return (self.confidence >= threshold) & (threshold < 1)


def pseudo_labels(logits: Tensor) -> PseudoLabels:
    return most_likely(logits.softmax(dim=1))


def most_likely(p: Tensor) -> PseudoLabels:
    """Of probabilities."""
    confidence, labels = p.max(dim=1)
    return PseudoLabels(labels, confidence)


class Observer(Protocol):
    """Whoever counts beliefs: a client."""

    def observe(self, pseudo: PseudoLabels, confident: Tensor, positions: Tensor | None = None) -> None: ...


class Beliefs:
    """What a network that is still training said last of each picture, where labels are made batch by batch."""

    def __init__(self, count: int) -> None:
        self._labels = torch.full((count,), -1, dtype=torch.int64)  # -1 until a picture is seen
        self._confidence = torch.zeros(count)

    def note(self, positions: Tensor, pseudo: PseudoLabels) -> None:
        device = pseudo.labels.device  # where they stay until training is over: nobody waits for them before
        self._labels, self._confidence = self._labels.to(device), self._confidence.to(device)
        self._labels[positions] = pseudo.labels
        self._confidence[positions] = pseudo.confidence

    def tell(self, client: Observer, threshold: float) -> int:
        """Let the client count what was said of the pictures that were seen; how many of them are confident."""
        labels, confidence = self._labels.cpu(), self._confidence.cpu()
        seen = (labels >= 0).nonzero().flatten()
        pseudo = PseudoLabels(labels[seen], confidence[seen])
        confident = pseudo.confident(threshold)
        client.observe(pseudo, confident, seen)
        return int(confident.sum())

"""Pseudo-labels from a model's output."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class PseudoLabels(NamedTuple):
    """For each picture the most likely class and how likely the model finds it."""

    labels: Tensor
    confidence: Tensor

    def confident(self, threshold: float) -> Tensor:
        """Which labels to keep: confidence ≥ τ; 0 keeps everything, 1 keeps nothing (a softmax can round to 1)."""
        return (self.confidence >= threshold) & (threshold < 1)


def pseudo_labels(logits: Tensor) -> PseudoLabels:
    confidence, labels = logits.softmax(dim=1).max(dim=1)
    return PseudoLabels(labels, confidence)

"""What only a simulation may know: the hidden labels of the clients. No method can import this file."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from semifl.data.dataset import UNKNOWN
from semifl.learning.targets import PseudoLabels


@dataclass(frozen=True)
class Oracle:
    """The true labels of one client's pictures, UNKNOWN where nobody knows."""

    labels: Tensor

    def judge(self, pseudo: PseudoLabels, confident: Tensor, positions: Tensor | None = None) -> dict[str, int]:
        """How many pseudo-labels are right: sums for the paper's pseudo and threshold accuracy."""
        labels = self.labels if positions is None else self.labels[positions]
        known = labels != UNKNOWN
        right = (pseudo.labels == labels) & known
        return {
            "known": int(known.sum()),
            "known_confident": int((known & confident).sum()),
            "right": int(right.sum()),
            "right_confident": int((right & confident).sum()),
        }

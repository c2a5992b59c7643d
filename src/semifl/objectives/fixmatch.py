"""FixMatch (Sohn et al., NeurIPS 2020): what a network is sure of in a weak view, it should say of the strong one.

Letters: μ unlabeled pictures per labeled one, τ threshold, λ_u weight of the unlabeled loss, α(·) weak and 𝒜(·) strong
view.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from semifl.data.epochs import PairedBatch, View
from semifl.fields import Count, NotNegative, Share
from semifl.learning.network import Network
from semifl.learning.targets import PseudoLabels, pseudo_labels
from semifl.learning.training import Memory
from semifl.objectives import Objective
from semifl.objectives._terms import has_unlabeled, labeled_loss


class Consistency(NamedTuple):
    """The unlabeled half of FixMatch on one batch."""

    loss: Tensor  # ℓ_u
    mask: Tensor  # share of the batch that is confident
    pseudo: PseudoLabels  # of every picture, confident or not


@dataclass(frozen=True)
class FixMatch(Objective):
    views: ClassVar[tuple[View, ...]] = ("weak", "strong")

    ratio: Count = 7  # μ
    threshold: Share = 0.95  # τ
    unlabeled_weight: NotNegative = 1.0  # λ_u

    def confident_from(self) -> float:
        return self.threshold

    def loss(self, network: Network, batch: PairedBatch, memory: Memory, progress: float) -> dict[str, Tensor]:
        # ℓ_s: labels, in the weak view.
        labeled = labeled_loss(network, batch)
        if not has_unlabeled(batch):
            return {"loss": labeled}

        # ℓ_u: confident pseudo-labels, in the strong view.
        unlabeled = self.consistency(network, *batch.unlabeled.views)

        return {
            "loss": labeled + self.unlabeled_weight * unlabeled.loss,
            "labeled_loss": labeled,
            "unlabeled_loss": unlabeled.loss,
            "mask": unlabeled.mask,
        }

    def consistency(self, network: Network, weak: Tensor, strong: Tensor) -> Consistency:
        """Pseudo-labels of α(u), and cross-entropy of 𝒜(u) with them; those not confident count as zero in the mean.

        Each view has its own forward pass, and so its own batch statistics; no gradient flows through the labels.
        """
        with torch.no_grad():
            pseudo = pseudo_labels(network(weak))
        confident = pseudo.confident(self.threshold).float()
        each = F.cross_entropy(network(strong), pseudo.labels, reduction="none")
        return Consistency((each * confident).mean(), confident.mean(), pseudo)

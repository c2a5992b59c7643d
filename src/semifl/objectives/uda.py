"""UDA, Unsupervised Data Augmentation (Xie et al., NeurIPS 2020): a strong view should say what the weak one says.

Letters: τ temperature of the target, β threshold, λ weight of the consistency loss, η_t the annealed threshold above
which a labeled picture is left alone, α_t its schedule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from semifl.data.epochs import PairedBatch, View
from semifl.fields import Count, NotNegative, Positive, Share
from semifl.learning.network import Network
from semifl.learning.targets import pseudo_labels
from semifl.learning.training import Memory
from semifl.objectives import Objective
from semifl.objectives._terms import has_unlabeled, labeled_loss


@dataclass(frozen=True)
class UDA(Objective):
    views: ClassVar[tuple[View, ...]] = ("weak", "strong")

    ratio: Count = 7  # μ, unlabeled pictures per labeled one
    temperature: Positive = 0.4  # τ
    threshold: Share = 0.8  # β
    unlabeled_weight: NotNegative = 1.0  # λ
    annealing: Literal["none", "log", "linear", "exp"] = "none"  # of the training signal; the authors' CIFAR-10: none

    def confident_from(self) -> float:
        return self.threshold

    def loss(self, network: Network, batch: PairedBatch, memory: Memory, progress: float) -> dict[str, Tensor]:
        if not has_unlabeled(batch):
            return {"loss": labeled_loss(network, batch)}

        # Labels, of those that the network does not know yet; the others are not counted in the mean.
        each, unknown = self.annealed(network(batch.labeled.images), batch.labeled.labels, progress)
        labeled = each.sum() / unknown.sum().clamp(min=1)

        # KL from the sharpened weak view to the strong one; those that are not confident count as zero in the mean.
        weak, strong = batch.unlabeled.views
        with torch.no_grad():
            said = network(weak)
        confident = pseudo_labels(said).confident(self.threshold).float()
        target = (said / self.temperature).log_softmax(dim=1)
        divergence = F.kl_div(network(strong).log_softmax(dim=1), target, reduction="none", log_target=True).sum(dim=1)
        unlabeled = (divergence * confident).mean()

        return {
            "loss": labeled + self.unlabeled_weight * unlabeled,
            "labeled_loss": labeled,
            "unlabeled_loss": unlabeled,
            "mask": confident.mean(),
            "labeled_mask": unknown.mean(),
        }

    def annealed(self, logits: Tensor, labels: Tensor, progress: float) -> tuple[Tensor, Tensor]:
        """The cross-entropy of each labeled picture, zero where its label has more than η_t, and where it has not."""
        cross_entropy = F.cross_entropy(logits, labels, reduction="none")
        η = annealed_threshold(self.annealing, progress, logits.shape[1])
        unknown = (cross_entropy.detach().neg().exp() <= η).float()
        return cross_entropy * unknown, unknown


def annealed_threshold(schedule: str, progress: float, classes: int) -> float:
    """η_t = α_t (1 − 1/K) + 1/K; without annealing nothing is above it."""
    if schedule == "none":
        return math.inf
    α = {
        "log": 1 - math.exp(-5 * progress),
        "linear": progress,
        "exp": math.exp(5 * (progress - 1)),
    }[schedule]
    return α * (1 - 1 / classes) + 1 / classes

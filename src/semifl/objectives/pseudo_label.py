"""Pseudo-Label (Lee 2013): a network's own most likely class is taken for the label, with a weight that ramps up.

Letters: y' the pseudo-label, α(t) the weight of the unlabeled loss, α_f its last value, T₁ and T₂ the ramp's ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from semifl.data.epochs import PairedBatch, View
from semifl.fields import Count, NotNegative, Share
from semifl.learning.network import Network
from semifl.learning.targets import pseudo_labels
from semifl.learning.training import Memory
from semifl.objectives import Objective
from semifl.objectives._terms import has_unlabeled, labeled_loss, linear_ramp


@dataclass(frozen=True)
class PseudoLabel(Objective):
    views: ClassVar[tuple[View, ...]] = ("weak",)

    ratio: Count = 8  # the author's 256 beside 32
    unlabeled_weight: NotNegative = 3.0  # α_f
    ramp_from: Share = 0.1  # T₁, as a share of training
    ramp_to: Share = 0.6  # T₂
    threshold: Share = 0.0  # 0 keeps every pseudo-label, as the author does; later re-runs of the method take 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ramp_to < self.ramp_from:
            raise ValueError(f"ramp_to must not lie before ramp_from = {self.ramp_from}, but is {self.ramp_to}")

    def confident_from(self) -> float:
        return self.threshold

    def loss(self, network: Network, batch: PairedBatch, memory: Memory, progress: float) -> dict[str, Tensor]:
        # Labels, in the weak view.
        labeled = labeled_loss(network, batch)
        if not has_unlabeled(batch):
            return {"loss": labeled}

        # y', from the very output that is trained; those that are not confident count as zero in the mean.
        logits = network(batch.unlabeled.views[0])
        pseudo = pseudo_labels(logits.detach())
        confident = pseudo.confident(self.threshold).float()
        unlabeled = (F.cross_entropy(logits, pseudo.labels, reduction="none") * confident).mean()

        α = self.unlabeled_weight * linear_ramp(progress, self.ramp_to, begin=self.ramp_from)
        return {
            "loss": labeled + α * unlabeled,
            "labeled_loss": labeled,
            "unlabeled_loss": unlabeled,
            "mask": confident.mean(),
        }

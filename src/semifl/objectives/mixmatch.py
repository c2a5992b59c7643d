"""MixMatch (Berthelot et al., NeurIPS 2019): guess labels from several views, sharpen them, mix everything.

Letters as in the paper's Algorithm 1: K views, T temperature, Beta(α, α) for Mixup, p labels, q guessed labels,
X' and U' the mixed batches, L_X and L_U their losses, λ_U the weight of L_U.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from semifl.data.epochs import PairedBatch, View
from semifl.fields import Count, NotNegative, Positive, Share
from semifl.learning.network import Network
from semifl.learning.training import Memory
from semifl.objectives import Objective
from semifl.objectives._terms import (
    has_unlabeled,
    interleaved_logits,
    labeled_loss,
    linear_ramp,
    mixup,
    sharpen,
)


@dataclass(frozen=True)
class MixMatch(Objective):
    ratio: Count = 1  # μ, unlabeled pictures per labeled one
    weak_views: Count = 2  # K
    temperature: Positive = 0.5  # T
    mix_beta: Positive = 0.75  # α
    unlabeled_weight: NotNegative = 75.0  # λ_U: the authors take 75 for CIFAR-10, 150 for CIFAR-100, 250 for SVHN
    ramp_up: Share = 1 / 64  # share of training over which λ_U rises in a straight line: 16 of the authors' 1,024

    @property
    def views(self) -> tuple[View, ...]:
        weak: View = "weak"
        return (weak,) * self.weak_views

    def loss(self, network: Network, batch: PairedBatch, memory: Memory, progress: float) -> dict[str, Tensor]:
        if not has_unlabeled(batch):
            return {"loss": labeled_loss(network, batch)}
        (images, labels), views = batch.labeled, batch.unlabeled.views

        # Guessed labels: the mean over the views, sharpened.
        with torch.no_grad():
            mean = torch.stack([network(view).softmax(dim=1) for view in views]).mean(dim=0)
        q = sharpen(mean, self.temperature)

        # Everything is mixed with everything.
        p = F.one_hot(labels, q.shape[1]).to(q.dtype)
        mixed, targets = mixup(torch.cat([images, *views]), torch.cat([p, *[q] * len(views)]), self.mix_beta)
        logits = interleaved_logits(network, mixed, [len(images), *map(len, views)])
        B = len(images)

        # L_X: cross-entropy of X'.
        L_X = F.cross_entropy(logits[:B], targets[:B])

        # L_U: squared distance of probabilities on U', mean over pictures and classes.
        L_U = F.mse_loss(logits[B:].softmax(dim=1), targets[B:])

        λ_U = self.unlabeled_weight * linear_ramp(progress, self.ramp_up)
        return {"loss": L_X + λ_U * L_U, "labeled_loss": L_X, "unlabeled_loss": L_U}

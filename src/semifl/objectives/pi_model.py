"""Π-model (Laine & Aila, ICLR 2017): a network should say the same of two views of a picture.

Letters: z and z̃ the class probabilities of the two views, w(t) the weight that ramps up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from semifl.data.epochs import PairedBatch, View
from semifl.fields import Count, NotNegative, Share
from semifl.learning.network import Network
from semifl.learning.training import Memory
from semifl.objectives import Objective
from semifl.objectives._terms import Ramp, has_unlabeled, labeled_loss, ramp


@dataclass(frozen=True)
class PiModel(Objective):
    views: ClassVar[tuple[View, ...]] = ("weak", "weak")

    ratio: Count = 1  # μ, unlabeled pictures per labeled one
    unlabeled_weight: NotNegative = 10.0  # w_max
    ramp_up: Share = 0.27  # share of training over which w(t) rises: 80 of the authors' 300 epochs
    ramp: Ramp = "gaussian"  # Shape of w(t) while it rises.
    stop_gradient: bool = False  # Hold the first view's probabilities fixed instead of training both views.

    def loss(self, network: Network, batch: PairedBatch, memory: Memory, progress: float) -> dict[str, Tensor]:
        # Labels, in the weak view.
        labeled = labeled_loss(network, batch)
        if not has_unlabeled(batch):
            return {"loss": labeled}

        # Agreement of two views.
        z, z_tilde = (network(view).softmax(dim=1) for view in batch.unlabeled.views)
        unlabeled = F.mse_loss(z_tilde, z.detach() if self.stop_gradient else z)

        w = self.unlabeled_weight * ramp(self.ramp, progress, self.ramp_up)
        return {"loss": labeled + w * unlabeled, "labeled_loss": labeled, "unlabeled_loss": unlabeled}

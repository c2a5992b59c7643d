"""Mean Teacher (Tarvainen & Valpola, NeurIPS 2017): a student follows its own average over past steps.

Letters: f(x, θ) the student's class probabilities, θ' the teacher's weights, α the decay of the average.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from semifl.data.epochs import PairedBatch, View
from semifl.fields import Count, NotNegative, Share
from semifl.learning.network import Network
from semifl.learning.training import Memory
from semifl.learning.weights import Weights
from semifl.objectives import Objective
from semifl.objectives._terms import Ramp, has_unlabeled, labeled_loss, ramp

TEACHER = "teacher."


@dataclass(frozen=True)
class MeanTeacher(Objective):
    views: ClassVar[tuple[View, ...]] = ("weak", "weak")

    ratio: Count = 1  # μ, unlabeled pictures per labeled one
    unlabeled_weight: NotNegative = 50.0  # of the consistency with the teacher, at its height
    ramp_up: Share = 0.22  # share of training over which the weight rises: 40,000 of the authors' 180,000 steps
    ramp: Ramp = "gaussian"  # Shape of the weight while it rises.
    decay: Share = 0.999  # α; in early steps 1 − 1/(step + 1), so that the teacher forgets the random start

    def start(self, weights: Weights, classes: int) -> Memory:
        teacher = {TEACHER + name: tensor.clone() for name, tensor in weights.items()}
        return {"step": torch.zeros((), dtype=torch.int64), **teacher}

    def loss(self, network: Network, batch: PairedBatch, memory: Memory, progress: float) -> dict[str, Tensor]:
        # Labels, in the weak view.
        labeled = labeled_loss(network, batch)
        if not has_unlabeled(batch):
            return {"loss": labeled}

        # The student's view of a picture against the teacher's other view of it.
        for_student, for_teacher = batch.unlabeled.views
        target = network.forward_with(_teacher(memory), for_teacher).softmax(dim=1)
        unlabeled = F.mse_loss(network(for_student).softmax(dim=1), target)

        w = self.unlabeled_weight * ramp(self.ramp, progress, self.ramp_up)
        return {"loss": labeled + w * unlabeled, "labeled_loss": labeled, "unlabeled_loss": unlabeled}

    def after_step(self, network: Network, memory: Memory) -> None:
        memory["step"] += 1
        α = min(1 - 1 / (int(memory["step"]) + 1), self.decay)
        network.average_into(_teacher(memory), α)

    def result(self, weights: Weights, memory: Memory) -> Weights:
        return _teacher(memory)


def _teacher(memory: Memory) -> Weights:
    """θ', by the names of the model: the remembered tensors themselves."""
    return {name.removeprefix(TEACHER): tensor for name, tensor in memory.items() if name.startswith(TEACHER)}

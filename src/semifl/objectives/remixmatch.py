"""ReMixMatch (Berthelot et al., ICLR 2020): MixMatch with aligned class shares and strong views anchored to a weak one.

Letters as in the paper's Algorithm 1: K strong views, T temperature, Beta(α, α) for Mixup, p labels, q guessed labels,
X' and U' the mixed batches, Û₁ the first strong view unmixed, r a rotation, λ the weights of the losses.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from semifl.data.epochs import PairedBatch, View
from semifl.errors import UserError
from semifl.fields import Count, NotNegative, Positive, Share
from semifl.learning.network import Network
from semifl.learning.training import Memory
from semifl.learning.weights import Weights
from semifl.objectives import Objective
from semifl.objectives._terms import (
    has_unlabeled,
    interleaved_logits,
    labeled_loss,
    linear_ramp,
    mixup,
    sharpen,
)

ROTATION = ("rotation.weight", "rotation.bias")  # the head that tells quarter turns apart
TINY = 1e-6  # keeps a class that is never predicted from dividing by nothing


@dataclass(frozen=True)
class ReMixMatch(Objective):
    ratio: Count = 1  # μ, unlabeled pictures per labeled one
    strong_views: Count = 2  # K; the authors take 8
    temperature: Positive = 0.5  # T
    mix_beta: Positive = 0.75  # α
    unlabeled_weight: NotNegative = 1.5  # λ_U, of U'
    anchor_weight: NotNegative = 0.5  # λ_Û₁
    rotation_weight: NotNegative = 0.5  # λ_r
    ramp_up: Share = 1 / 64  # share of training over which λ_U and λ_Û₁ rise: 16 of the authors' 1,024
    window: Count = 128  # batches over which predictions are averaged
    rotation_lr: Positive = 0.1  # of the rotation head, which plain SGD trains

    @property
    def views(self) -> tuple[View, ...]:
        strong: View = "strong"
        return ("weak", *[strong] * self.strong_views)

    def start(self, weights: Weights, classes: int) -> Memory:
        return {"predicted": torch.full((self.window, classes), 1 / classes), "labeled": torch.ones(classes)}

    def loss(self, network: Network, batch: PairedBatch, memory: Memory, progress: float) -> dict[str, Tensor]:
        if not has_unlabeled(batch):
            return {"loss": labeled_loss(network, batch)}
        (images, labels), (weak, *strong) = batch.labeled, batch.unlabeled.views

        # The anchor: what the weak view says, aligned with the shares of the labels, sharpened.
        with torch.no_grad():
            said = network(weak).softmax(dim=1)
        q = sharpen(align(said, memory), self.temperature)

        # Every view takes the anchor for its label, and everything is mixed with everything.
        p = F.one_hot(labels, q.shape[1]).to(q.dtype)
        kinds = [images, *strong, weak]
        mixed, targets = mixup(torch.cat(kinds), torch.cat([p, *[q] * (len(kinds) - 1)]), self.mix_beta)
        logits = interleaved_logits(network, mixed, list(map(len, kinds)))
        B = len(images)

        # X': cross-entropy with the labels.
        L_X = F.cross_entropy(logits[:B], targets[:B])

        # U': cross-entropy with the anchors.
        L_U = F.cross_entropy(logits[B:], targets[B:])

        # Û₁: the same before mixing.
        L_U1 = F.cross_entropy(network(strong[0]), q)

        # Which way up a strong view is.
        L_r = self.rotation_loss(network, strong[0], memory)

        remember(said, labels, memory)
        ramp = linear_ramp(progress, self.ramp_up)
        unlabeled = ramp * (self.unlabeled_weight * L_U + self.anchor_weight * L_U1)
        loss = L_X + unlabeled + self.rotation_weight * L_r
        return {
            "loss": loss,
            "labeled_loss": L_X,
            "unlabeled_loss": L_U,
            "anchor_loss": L_U1,
            "rotation_loss": L_r,
        }

    def rotation_loss(self, network: Network, images: Tensor, memory: Memory) -> Tensor:
        """Cross-entropy of four quarter turns, told apart by a linear head of its own on the network's features."""
        if getattr(network.module, "takes_features", False):
            raise UserError("remixmatch turns pictures, and frozen features cannot be turned: model.views = 0")
        turned, r = rotate(images)
        _, features = network.with_features(turned)
        if ROTATION[0] not in memory:  # only now is the number of features known
            memory.update(zip(ROTATION, (features.new_zeros(4, features.shape[1]), features.new_zeros(4)), strict=True))
        head = [memory[name].requires_grad_() for name in ROTATION]
        return F.cross_entropy(F.linear(features, *head), r)

    def after_step(self, network: Network, memory: Memory) -> None:
        for name in ROTATION:
            if name in memory and (gradient := memory[name].grad) is not None:
                memory[name] = memory[name].detach() - self.rotation_lr * gradient


def align(said: Tensor, memory: Memory) -> Tensor:
    """Distribution alignment: times the labels' class shares over those of recent predictions, normalised."""
    wanted, predicted = memory["labeled"] / memory["labeled"].sum(), memory["predicted"].mean(dim=0)
    aligned = said * (wanted + TINY) / (predicted + TINY)
    return aligned / aligned.sum(dim=1, keepdim=True)


def remember(said: Tensor, labels: Tensor, memory: Memory) -> None:
    """The newest predictions take the place of the oldest; labels are counted for good."""
    memory["predicted"] = torch.cat([memory["predicted"][1:], said.mean(dim=0, keepdim=True)])
    memory["labeled"] = memory["labeled"] + F.one_hot(labels, said.shape[1]).sum(dim=0)


def rotate(images: Tensor) -> tuple[Tensor, Tensor]:
    """Each picture turned by a random number of quarter turns, and that number."""
    r = torch.randint(4, (len(images),))
    turns = torch.stack([torch.rot90(images, quarter, (2, 3)) for quarter in range(4)])
    return turns[r, torch.arange(len(images))], r.to(images.device)

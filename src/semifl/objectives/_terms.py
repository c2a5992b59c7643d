"""What several objectives are made of: the loss of labels, ramps, sharpening, Mixup, interleaved forward passes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from semifl.data.augment import mix
from semifl.data.epochs import PairedBatch
from semifl.learning.network import Network


def has_unlabeled(batch: PairedBatch) -> bool:
    return len(batch.unlabeled.positions) > 0


def labeled_loss(network: Network, batch: PairedBatch, smoothing: float = 0.0) -> Tensor:
    """Cross-entropy of the labeled pictures, in a forward pass of their own."""
    return F.cross_entropy(network(batch.labeled.images), batch.labeled.labels, label_smoothing=smoothing)


Ramp = Literal["gaussian", "linear"]


def ramp(shape: Ramp, progress: float, length: float) -> float:
    """Return the ramp-up factor after a share `progress` of training, which is 1 from `length` on.

    With x rising from 0 to 1, "gaussian" is exp(−5 (1 − x)²) (Laine & Aila 2017) and "linear" is x.
    """
    x = linear_ramp(progress, length)
    return x if shape == "linear" else math.exp(-5 * (1 - x) ** 2)


def linear_ramp(progress: float, length: float, begin: float = 0.0) -> float:
    """0 until `begin`, 1 from `length` on, a straight line between; both are shares of training."""
    return min(max((progress - begin) / (length - begin), 0.0), 1.0) if length > begin else 1.0


def sharpen(p: Tensor, temperature: float) -> Tensor:
    """p^(1/T), normalised: the lower T, the closer to one-hot."""
    return (p.log() / temperature).softmax(dim=1)


def mixup(images: Tensor, targets: Tensor, a: float) -> tuple[Tensor, Tensor]:
    """Each picture and target mixed with those of a random other, by λ' = max(λ, 1 − λ) so that it stays mostly itself.

    λ is drawn from Beta(a, a), once for each picture.
    """
    λ = torch.distributions.Beta(a, a).sample((len(images),)).to(images.device)
    λ = torch.maximum(λ, 1 - λ)
    partner = torch.randperm(len(images))
    return mix(images, images[partner], λ), mix(targets, targets[partner], λ)


def interleave(sizes: Sequence[int]) -> list[Tensor]:
    """Positions in batches of these sizes laid end to end, regrouped into as many batches that are each of all kinds.

    As MixMatch's authors do it: every batch is cut into as many parts as there are batches; then batch i gives its
    part i to the first one and takes the first one's part i.
    """
    batches = torch.split(torch.arange(sum(sizes)), list(sizes))
    parts = [list(torch.tensor_split(positions, len(sizes))) for positions in batches]
    for i in range(1, len(sizes)):
        parts[0][i], parts[i][i] = parts[i][i], parts[0][i]
    return [torch.cat(each) for each in parts]


def interleaved_logits(network: Network, images: Tensor, sizes: Sequence[int]) -> Tensor:
    """Logits of pictures that are batches of `sizes` laid end to end, from one forward pass per interleaved batch.

    The BatchNorm statistics of each pass are then those of labeled and unlabeled pictures together.
    """
    groups = interleave(sizes)
    logits = torch.cat([network(images[group]) for group in groups])
    return logits[torch.argsort(torch.cat(groups))]

"""Parts that several architectures are built from."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn

FEW = 8  # channels


def conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    if kernel == 1 and stride > 1 and inputs < FEW:
        return ThinShortcut(inputs, outputs, kernel, stride=stride, bias=False)
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


class ThinShortcut(nn.Conv2d):
    """A strided 1 × 1 convolution of few channels, which leaves pixels out first.

    The plain one corrupts memory in its backward pass: torch 2.13 with oneDNN, channels last, 2 to 6 inputs, AVX2.
    """

    def forward(self, input: Tensor) -> Tensor:
        down, across = self.stride
        return F.conv2d(input[:, :, ::down, ::across], self.weight)


def narrowed(channels: int, share: float) -> int:
    """How many of a hidden layer's channels a sub-network has; the small shift undoes the rounding of the product."""
    return max(1, math.ceil(channels * share - 1e-9))


def norm_layer(kind: str, channels: int, share: float = 1.0) -> nn.Module:
    """BatchNorm, or GroupNorm with the most groups up to eight that divide the channels.

    In a sub-network of `share` its inputs are scaled.
    """
    norm: nn.Module
    if kind == "batch":
        norm = nn.BatchNorm2d(channels)
    else:
        groups = next(groups for groups in range(min(8, channels), 0, -1) if channels % groups == 0)
        norm = nn.GroupNorm(groups, channels)
    if share < 1:
        # A hook and not a layer: the sub-network's parameters must have the names of the whole one's.
        norm.register_forward_pre_hook(Scaler(share))
    return norm


class Scaler:
    """HeteroFL's Scaler: divides by the share of the channels that are there, as dropout does, in training only."""

    def __init__(self, share: float) -> None:
        self.share = share

    def __call__(self, norm: nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        return (inputs[0] / self.share,) if norm.training else inputs


def initialise(module: nn.Module) -> nn.Module:
    """Convolutions Kaiming normal by fan-out, norms 1 and 0, linear weights as PyTorch draws them with bias 0."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d) and not layer.weight.is_meta:  # nothing to draw where there is no memory
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.bias)
    return module

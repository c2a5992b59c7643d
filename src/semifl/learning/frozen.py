"""Parts of a network that stay as they came: BatchNorm with its own statistics, and which tensors train at all."""

from __future__ import annotations

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from semifl.learning import batchnorm


class FrozenBatchNorm(nn.Module):
    """A BatchNorm layer that normalises by the statistics it came with, also while training.

    It is none of the layers of static BatchNorm: there is nothing to refresh, and no statistics travel. Its scale and
    shift may train.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, layer: _BatchNorm) -> None:
        super().__init__()
        assert layer.running_mean is not None
        assert layer.running_var is not None
        self.weight, self.bias, self.eps = layer.weight, layer.bias, layer.eps
        self.register_buffer("running_mean", layer.running_mean)
        self.register_buffer("running_var", layer.running_var)

    def affine(self) -> tuple[Tensor, Tensor]:
        """What it does to each channel: a factor, and what is added."""
        scale = self.weight * (self.running_var + self.eps).rsqrt()
        return scale, self.bias - self.running_mean * scale

    def forward(self, x: Tensor) -> Tensor:
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, training=False, eps=self.eps
        )


def freeze_batchnorm(module: nn.Module) -> None:
    """Put a FrozenBatchNorm in the place of every BatchNorm layer below the module."""
    for name, layer in batchnorm.layers(module).items():
        parent, _, own = name.rpartition(".")
        setattr(module.get_submodule(parent), own, FrozenBatchNorm(layer))


def norm_parameters(module: nn.Module) -> Iterator[nn.Parameter]:
    """Scale and shift of every layer that normalises, whoever wrote it."""
    for layer in module.modules():
        if isinstance(layer, (_BatchNorm, nn.LayerNorm, nn.GroupNorm, FrozenBatchNorm)) or _is_named_norm(layer):
            yield from layer.parameters(recurse=False)


def _is_named_norm(layer: nn.Module) -> bool:
    """Libraries write norms of their own (RMSNorm, LayerNorm2d), and name them so."""
    name = type(layer).__name__.lower()
    return "norm" in name and all(parameter.dim() == 1 for parameter in layer.parameters(recurse=False))


def is_virtual(module: nn.Module) -> bool:
    """Whether it was built to be counted only, without memory for its numbers."""
    return any(parameter.device == torch.device("meta") for parameter in module.parameters())

"""Parts that several architectures are built from."""

from __future__ import annotations

from torch import nn


def conv(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


def norm_layer(kind: str, channels: int) -> nn.Module:
    """BatchNorm, or GroupNorm with the most groups up to eight that divide the channels."""
    if kind == "batch":
        return nn.BatchNorm2d(channels)
    return nn.GroupNorm(next(groups for groups in range(min(8, channels), 0, -1) if channels % groups == 0), channels)


def initialise(module: nn.Module) -> nn.Module:
    """Convolutions Kaiming normal by fan-out, norms 1 and 0, linear weights as PyTorch draws them with bias 0."""
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(layer, nn.Linear):
            nn.init.zeros_(layer.bias)
    return module

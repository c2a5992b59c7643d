"""A small convolutional network: four blocks of convolution, norm, ReLU and pooling, then a linear layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from semifl.fields import Checked, Count
from semifl.learning.layers import conv, initialise, narrowed, norm_layer


@dataclass(frozen=True)
class Cnn(Checked):
    width: Count = 32  # channels of the first block; each of the other three doubles them
    norm: Literal["batch", "group"] = "batch"  # BatchNorm or GroupNorm

    def build(self, channels: int, size: int, classes: int, share: float = 1.0) -> nn.Module:
        layers: list[nn.Module] = []
        inputs = channels
        for factor in (1, 2, 4, 8):
            outputs = narrowed(factor * self.width, share)
            layers += [conv(inputs, outputs, 3), norm_layer(self.norm, outputs, share), nn.ReLU()]
            if size >= 4:  # pool while there is something left to pool, so that tiny pictures work too
                layers.append(nn.MaxPool2d(2))
                size //= 2
            inputs = outputs
        return initialise(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)))

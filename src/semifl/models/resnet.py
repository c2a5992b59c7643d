"""ResNet 9 and 18 (He et al. 2016) in the form used for small pictures: 3×3 stem, no pooling before the blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from semifl.learning.layers import conv, initialise, norm_layer

BLOCKS_PER_STAGE = {9: 1, 18: 2}


@dataclass(frozen=True)
class ResNet:
    depth: Literal[9, 18] = 18
    norm: Literal["batch", "group"] = "batch"

    def build(self, channels: int, size: int, classes: int) -> nn.Module:
        layers: list[nn.Module] = [conv(channels, 64, 3), norm_layer(self.norm, 64), nn.ReLU()]
        inputs = 64
        for stage, outputs in enumerate((64, 128, 256, 512)):
            for block in range(BLOCKS_PER_STAGE[self.depth]):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(_Block(inputs, outputs, stride, self.norm))
                inputs = outputs
        return initialise(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)))


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, norm: str) -> None:
        super().__init__()
        self.conv1 = conv(inputs, outputs, 3, stride)
        self.norm1 = norm_layer(norm, outputs)
        self.conv2 = conv(outputs, outputs, 3)
        self.norm2 = norm_layer(norm, outputs)
        same = inputs == outputs and stride == 1
        self.shortcut = (
            nn.Identity() if same else nn.Sequential(conv(inputs, outputs, 1, stride), norm_layer(norm, outputs))
        )

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(out + self.shortcut(x))

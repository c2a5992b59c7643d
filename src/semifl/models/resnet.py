"""ResNet 9 and 18 (He et al. 2016) in the form used for small pictures: 3×3 stem, no pooling before the blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from semifl.fields import Checked
from semifl.learning.layers import conv, initialise, narrowed, norm_layer

BLOCKS_PER_STAGE = {9: 1, 18: 2}


@dataclass(frozen=True)
class ResNet(Checked):
    depth: Literal[9, 18] = 18  # layers
    norm: Literal["batch", "group"] = "batch"  # BatchNorm or GroupNorm

    def build(self, channels: int, size: int, classes: int, share: float = 1.0) -> nn.Module:
        inputs = narrowed(64, share)
        layers: list[nn.Module] = [conv(channels, inputs, 3), norm_layer(self.norm, inputs, share), nn.ReLU()]
        for stage, whole in enumerate((64, 128, 256, 512)):
            outputs = narrowed(whole, share)
            for block in range(BLOCKS_PER_STAGE[self.depth]):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(_Block(inputs, outputs, stride, self.norm, share))
                inputs = outputs
        return initialise(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes)))


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, norm: str, share: float) -> None:
        super().__init__()
        self.conv1 = conv(inputs, outputs, 3, stride)
        self.norm1 = norm_layer(norm, outputs, share)
        self.conv2 = conv(outputs, outputs, 3)
        self.norm2 = norm_layer(norm, outputs, share)
        self.shortcut = (
            nn.Identity()
            if stride == 1  # as many channels go in as come out, in the whole network and in every part of it
            else nn.Sequential(conv(inputs, outputs, 1, stride), norm_layer(norm, outputs, share))
        )

    def forward(self, x: Tensor) -> Tensor:
        out = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(out + self.shortcut(x))

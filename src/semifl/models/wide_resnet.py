"""Wide ResNet (Zagoruyko & Komodakis 2016), pre-activation, as SemiFL uses it: plain ReLU, no dropout, no conv bias."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from semifl.learning.layers import conv, initialise, norm_layer


@dataclass(frozen=True)
class WideResNet:
    depth: int = 28
    width: int = 2
    norm: Literal["batch", "group"] = "batch"

    def __post_init__(self) -> None:
        if self.depth < 10 or (self.depth - 4) % 6:
            raise ValueError(f"depth must be 10, 16, 22, 28, … (6n + 4), not {self.depth}")
        if self.width < 1:
            raise ValueError(f"width must be at least 1, not {self.width}")

    def build(self, channels: int, size: int, classes: int) -> nn.Module:
        blocks = (self.depth - 4) // 6
        widths = [16 * self.width, 32 * self.width, 64 * self.width]
        layers: list[nn.Module] = [conv(channels, 16, 3)]
        inputs = 16
        for stage, outputs in enumerate(widths):
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(_Block(inputs, outputs, stride, self.norm))
                inputs = outputs
        head = [
            norm_layer(self.norm, inputs),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(inputs, classes),
        ]
        return initialise(nn.Sequential(*layers, *head))


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, norm: str) -> None:
        super().__init__()
        self.norm1 = norm_layer(norm, inputs)
        self.conv1 = conv(inputs, outputs, 3, stride)
        self.norm2 = norm_layer(norm, outputs)
        self.conv2 = conv(outputs, outputs, 3)
        self.shortcut = None if inputs == outputs and stride == 1 else conv(inputs, outputs, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        activated = F.relu(self.norm1(x), inplace=True)  # a norm does not need its own output again
        skip = x if self.shortcut is None else self.shortcut(activated)
        out = self.conv2(F.relu(self.norm2(self.conv1(activated)), inplace=True))
        return skip + out  # type: ignore[no-any-return]

"""Wide ResNet (Zagoruyko & Komodakis 2016), pre-activation, as SemiFL uses it: plain ReLU, no dropout, no conv bias."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch.nn.functional as F
from torch import Tensor, nn

from semifl.fields import Checked, Count, Range
from semifl.learning.layers import conv, initialise, narrowed, norm_layer

DEEPEST = 1000  # layers, the most of the paper


@dataclass(frozen=True)
class WideResNet(Checked):
    depth: Annotated[int, Range(most=DEEPEST)] = 28  # layers: 10, 16, 22, 28, …
    width: Count = 2  # k, times the 16, 32 and 64 channels of a plain one
    norm: Literal["batch", "group"] = "batch"  # BatchNorm or GroupNorm

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.depth < 10 or (self.depth - 4) % 6:
            raise ValueError(f"depth must be 10, 16, 22, 28, … (6n + 4), not {self.depth}")

    def build(self, channels: int, size: int, classes: int, share: float = 1.0) -> nn.Module:
        blocks = (self.depth - 4) // 6
        inputs = narrowed(16, share)
        layers: list[nn.Module] = [conv(channels, inputs, 3)]
        for stage, whole in enumerate((16 * self.width, 32 * self.width, 64 * self.width)):
            outputs = narrowed(whole, share)
            for block in range(blocks):
                stride = 2 if stage > 0 and block == 0 else 1
                # Whether a block has a shortcut is a matter of the whole network: its parts have the same layers.
                shortcut = block == 0 and (stage > 0 or self.width > 1)
                layers.append(_Block(inputs, outputs, stride, self.norm, share, shortcut))
                inputs = outputs
        head = [
            norm_layer(self.norm, inputs, share),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(inputs, classes),
        ]
        return initialise(nn.Sequential(*layers, *head))


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int, norm: str, share: float, shortcut: bool) -> None:
        super().__init__()
        self.norm1 = norm_layer(norm, inputs, share)
        self.conv1 = conv(inputs, outputs, 3, stride)
        self.norm2 = norm_layer(norm, outputs, share)
        self.conv2 = conv(outputs, outputs, 3)
        self.shortcut = conv(inputs, outputs, 1, stride) if shortcut else None

    def forward(self, x: Tensor) -> Tensor:
        activated = F.relu(self.norm1(x), inplace=True)  # a norm does not need its own output again
        skip = x if self.shortcut is None else self.shortcut(activated)
        out = self.conv2(F.relu(self.norm2(self.conv1(activated)), inplace=True))
        return skip + out  # type: ignore[no-any-return]

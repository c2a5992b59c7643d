"""A fast network for small pictures: a frozen whitening stem, then six wide convolutions, pooled early."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from semifl.fields import Checked
from semifl.learning.layers import conv, initialise, narrowed, norm_layer
from semifl.learning.whitening import PATCH, Rows

LOGITS = 1 / 9  # times the head's output: the largest features of a whole picture would make it sure too soon


@dataclass(frozen=True)
class FastCnn(Checked):
    widths: tuple[int, int, int] = (64, 256, 256)  # channels of the three groups, two convolutions each
    norm: Literal["batch", "group"] = "batch"  # BatchNorm or GroupNorm
    mirrored: bool = False  # infer from a picture and from its mirror image, at twice the cost

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.widths) < 1:
            raise ValueError(f"widths must be at least 1, not {list(self.widths)}")

    def build(
        self, channels: int, size: int, classes: int, share: float = 1.0, whitening: Rows | None = None
    ) -> nn.Module:
        """Without `whitening`, the stem's filters, it hands patches on as they are.

        The stem is whole in every sub-network: nobody trains it, so no message has to carry it.
        """
        layers: list[nn.Module] = [_Stem(channels, whitening)]
        inputs, side = 2 * channels * PATCH**2, size - PATCH + 1
        for width in self.widths:
            outputs = narrowed(width, share)
            layers.append(conv(inputs, outputs, 3))
            if side >= 2:  # pool while there is something left to pool, so that tiny pictures work too
                layers.append(nn.MaxPool2d(2))
                side //= 2
            layers += [norm_layer(self.norm, outputs, share), nn.GELU()]
            layers += [conv(outputs, outputs, 3), norm_layer(self.norm, outputs, share), nn.GELU()]
            inputs = outputs
        head = [nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(inputs, classes), _Scale(LOGITS)]
        whole = _Mirrored if self.mirrored else nn.Sequential
        return _pass_on(initialise(whole(*layers, *head)))


class _Mirrored(nn.Sequential):
    """What it says of a picture and of its mirror image, on average, when it infers.

    Not while any of its layers learns or measures statistics: for that the picture itself is enough.
    """

    def forward(self, x: Tensor) -> Tensor:
        if any(layer.training for layer in self):
            return self._once(x)
        return (self._once(x) + self._once(x.flip(3))) / 2

    def _once(self, x: Tensor) -> Tensor:
        for layer in self:
            x = layer(x)
        return x


class _Stem(nn.Module):
    """Whitened patches and their negatives, so that the GELU behind loses neither side."""

    whitening: Tensor

    def __init__(self, channels: int, rows: Rows | None) -> None:
        super().__init__()
        filters = torch.eye(channels * PATCH**2) if rows is None else torch.tensor(rows)
        filters = filters.view(-1, channels, PATCH, PATCH).contiguous(memory_format=torch.channels_last)
        # A buffer and no parameter: it is saved with the model, but neither trained nor sent nor averaged.
        self.register_buffer("whitening", filters)

    def forward(self, x: Tensor) -> Tensor:
        white = F.conv2d(x, self.whitening)
        return F.gelu(torch.cat([white, -white], dim=1))


class _Scale(nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


def _pass_on(module: nn.Module) -> nn.Module:
    """Let the first filters of every convolution pass their inputs on, which deep layers learn from at once."""
    with torch.no_grad():
        for layer in module.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.dirac_(layer.weight[: layer.in_channels])
    return module

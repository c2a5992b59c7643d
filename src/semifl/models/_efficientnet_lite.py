"""EfficientNet-Lite0 (Tan & Le 2019, the variant of 2020 for small devices): no squeeze-and-excitation, ReLU6.

Names are those of the published weights, so that a file needs no translation. Pictures are padded as TensorFlow does,
where the weights come from: what is odd goes to the right and below.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from semifl.learning.frozen import FrozenBatchNorm

FEATURES = 1280
# Of each stage: blocks, kernel, stride of the first block, expansion, channels.
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


class EfficientNetLite0(nn.Module):
    """Pictures in, features out: the published head for a thousand classes is left out."""

    def __init__(self) -> None:
        super().__init__()
        self._conv_stem = _Conv(3, 32, 3, stride=2)
        self._bn0 = _norm(32)
        blocks: list[nn.Module] = []
        inputs = 32
        for repeats, kernel, stride, expansion, outputs in STAGES:
            for repeat in range(repeats):
                blocks.append(_Block(inputs, outputs, kernel, stride if repeat == 0 else 1, expansion))
                inputs = outputs
        self._blocks = nn.Sequential(*blocks)
        self._conv_head = nn.Conv2d(inputs, FEATURES, 1, bias=False)
        self._bn1 = _norm(FEATURES)

    def forward(self, x: Tensor) -> Tensor:
        return self.end(self.begin(x, 0), 0)

    def begin(self, x: Tensor, blocks: int) -> Tensor:
        """The way of pictures through the first blocks."""
        x = F.relu6(_normalised(self._conv_stem, self._bn0, x))
        for block in self._some(0, blocks):
            x = block(x)
        return x

    def end(self, x: Tensor, blocks: int) -> Tensor:
        """The rest of the way, from what `begin` gave to the features."""
        for block in self._some(blocks, None):
            x = block(x)
        x = F.relu6(_normalised(self._conv_head, self._bn1, x))
        return x.mean(dim=(2, 3))

    def first_parts(self, blocks: int) -> tuple[nn.Module, ...]:
        """What `begin` consists of."""
        return self._conv_stem, self._bn0, *self._some(0, blocks)

    def _some(self, first: int, last: int | None) -> list[nn.Module]:
        return list(self._blocks)[first:last]


class _Block(nn.Module):
    """Widen by a 1×1 convolution, filter each channel by itself, and make it narrow again."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inputs * expansion
        self._expands, self._skips = expansion != 1, stride == 1 and inputs == outputs
        if self._expands:
            self._expand_conv = nn.Conv2d(inputs, wide, 1, bias=False)
            self._bn0 = _norm(wide)
        self._depthwise_conv = _Conv(wide, wide, kernel, stride, groups=wide)
        self._bn1 = _norm(wide)
        self._project_conv = nn.Conv2d(wide, outputs, 1, bias=False)
        self._bn2 = _norm(outputs)

    def forward(self, x: Tensor) -> Tensor:
        wide = F.relu6(_normalised(self._expand_conv, self._bn0, x)) if self._expands else x
        wide = F.relu6(_normalised(self._depthwise_conv, self._bn1, wide))
        out = _normalised(self._project_conv, self._bn2, wide)
        return x + out if self._skips else out


class _Conv(nn.Conv2d):
    """Of larger kernels."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return _convolved(x, self, self.weight, None)


def _normalised(conv: nn.Module, norm: nn.Module, x: Tensor) -> Tensor:
    """A convolution and its norm; as one where the norm's statistics never change, which spares a pass over memory.

    Not where the norm trains alone: the way to its gradient would lead through that of the whole kernel.
    """
    if isinstance(norm, FrozenBatchNorm) and isinstance(conv, nn.Conv2d) and not _trains_alone(norm, conv):
        scale, shift = norm.affine()
        return _convolved(x, conv, conv.weight * scale[:, None, None, None], shift)
    out: Tensor = norm(conv(x))
    return out


def _trains_alone(norm: FrozenBatchNorm, conv: nn.Conv2d) -> bool:
    return norm.weight.requires_grad and not conv.weight.requires_grad


def _convolved(x: Tensor, conv: nn.Conv2d, weight: Tensor, bias: Tensor | None) -> Tensor:
    kernel, stride = conv.kernel_size[0], conv.stride[0]
    padding = kernel // 2
    if stride != 1:
        rows, columns = (_padding(size, kernel, stride) for size in x.shape[2:])
        x, padding = F.pad(x, (*columns, *rows)), 0
    learns = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    if conv.groups == 1 or x.device.type != "cpu" or not learns:
        return F.conv2d(x, weight, bias, stride, padding, 1, conv.groups)
    # Gradients of filters are several times slower in bfloat16 on CPUs, where only matrix products gain by it.
    with torch.autocast("cpu", enabled=False):
        return F.conv2d(x.float(), weight, bias, stride, padding, 1, conv.groups)


def _padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    missing = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return missing // 2, missing - missing // 2


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)

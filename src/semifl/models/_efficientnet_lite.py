"""EfficientNet-Lite0 (Tan & Le 2019, the variant of 2020 for small devices): no squeeze-and-excitation, ReLU6.

Names are those of the published weights, so that a file needs no translation. Pictures are padded as TensorFlow does,
where the weights come from: what is odd goes to the right and below.
"""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

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
        x = self._blocks(F.relu6(self._bn0(self._conv_stem(x))))
        x = F.relu6(self._bn1(self._conv_head(x)))
        return x.mean(dim=(2, 3))


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
        wide = F.relu6(self._bn0(self._expand_conv(x))) if self._expands else x
        out: Tensor = self._bn2(self._project_conv(F.relu6(self._bn1(self._depthwise_conv(wide)))))
        return x + out if self._skips else out


class _Conv(nn.Conv2d):
    """Of larger kernels."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride, groups=groups, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        kernel, stride = self.kernel_size[0], self.stride[0]
        if stride == 1:
            return F.conv2d(x, self.weight, None, stride, kernel // 2, 1, self.groups)
        rows, columns = (_padding(size, kernel, stride) for size in x.shape[2:])
        return F.conv2d(F.pad(x, (*columns, *rows)), self.weight, None, stride, 0, 1, self.groups)


def _padding(size: int, kernel: int, stride: int) -> tuple[int, int]:
    missing = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return missing // 2, missing - missing // 2


def _norm(channels: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(channels, eps=1e-3)

"""The weak view of the widest supervised run: half as far as the paper's, because a short run learns from it sooner.

`data.weak_view = "views:two_pixels"`; Python must find this file: `PYTHONPATH=results/cifar10 semifl run …`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from semifl.data.augment import WeakDraws, apply_weak

MIDDLE = 4  # where a crop of 32 pixels begins that moves nothing
SHIFT = 2  # pixels at most, to each side


def two_pixels(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """Mirrored or not, and moved; what comes in at the edge is a reflection."""
    mirrored = torch.rand(len(pictures), generator=generator) < 0.5
    down, right = torch.randint(-SHIFT, SHIFT + 1, (len(pictures), 2), generator=generator).unbind(1)
    return apply_weak(pictures, WeakDraws(MIDDLE + down, MIDDLE + right.where(~mirrored, -right), mirrored))

"""The weak view of the widest supervised run: half as far as the paper's, because a short run learns from it sooner.

`data.weak_view = "views:two_pixels"`; Python must find this file: `PYTHONPATH=results/cifar10 semifl run …`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

SHIFT = 2  # pixels at most, to each side


def two_pixels(pictures: Tensor, generator: torch.Generator) -> Tensor:
    """Mirrored or not, and moved; what comes in at the edge is a reflection."""
    n, _, side, _ = pictures.shape
    mirrored = torch.rand(n, generator=generator) < 0.5
    pictures = torch.where(mirrored[:, None, None, None], pictures.flip(3), pictures)
    wide = F.pad(pictures.float(), (SHIFT,) * 4, mode="reflect").to(pictures.dtype)
    corners = torch.randint(0, 2 * SHIFT + 1, (n, 2, 1), generator=generator)
    rows, columns = (corners[:, axis] + torch.arange(side) for axis in (0, 1))
    return wide[torch.arange(n)[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)

"""Filters that whiten small patches of pictures, for the frozen first layer of a model that asks for them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from semifl.learning.evaluation import blocks

PATCH = 2  # pixels on a side
FLOOR = 5e-4  # added to every variance, so that what hardly ever varies is not blown up

Rows = tuple[tuple[float, ...], ...]  # a filter each, in the order channel, row, column of its patch


def whitening_rows(images: Tensor, std: tuple[float, ...]) -> Rows:
    """The patches' principal directions, the most frequent first, each divided by its own spread.

    `images` are uint8. The filters are for normalised pictures; their mean is no matter, a covariance has none.
    """
    scale = torch.tensor([255 * each for each in std], dtype=torch.float64).repeat_interleave(PATCH**2)
    variances, directions = torch.linalg.eigh(_covariance(images) / torch.outer(scale, scale))
    rows = directions.T / (variances.clamp(min=0) + FLOOR).sqrt()[:, None]
    # An eigenvector has no sign of its own: let the largest entry be positive.
    largest = rows.gather(1, rows.abs().argmax(dim=1, keepdim=True))
    return as_rows((rows * largest.sign()).flip(0))


def as_rows(filters: Tensor) -> Rows:
    """As plain numbers of single precision, which JSON carries to the bit."""
    return tuple(tuple(row) for row in filters.flatten(1).float().tolist())


def _covariance(images: Tensor) -> Tensor:
    """Of all patches' pixel values.

    Sums of whole numbers are exact in float64, so neither threads nor blocks leave a trace in them.
    """
    size = images.shape[1] * PATCH**2
    number, sums, products = 0, torch.zeros(size).double(), torch.zeros(size, size).double()
    for block in blocks(len(images)):
        patches = F.unfold(images[block].double(), PATCH).transpose(0, 1).flatten(1)
        number += patches.shape[1]
        sums += patches.sum(dim=1)
        products += patches @ patches.T
    return products / number - torch.outer(sums, sums) / number**2

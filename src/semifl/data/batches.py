"""Which pictures make up the batches of an epoch, and how many are turned into views at a time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from semifl.learning.evaluation import blocks

STRETCH_PIXELS = 2**21  # 2,048 pictures of 32 × 32: long enough for batched tensor code, small enough for any memory


def shuffled(positions: Tensor, generator: torch.Generator) -> Tensor:
    """In random order; one picture alone comes twice, in two views, because BatchNorm cannot normalise one value."""
    if len(positions) == 1:
        return positions.repeat(2)
    return positions[torch.randperm(len(positions), generator=generator)]


def with_replacement(positions: Tensor, count: int, generator: torch.Generator) -> Tensor:
    return positions[torch.randint(len(positions), (count,), generator=generator)]


def stretches(count: int, batch: int, size: int) -> Iterator[tuple[slice, list[slice]]]:
    """Cut an epoch into batches (one picture alone joins the batch before), and those into stretches to make views of.

    Each stretch comes with its batches, counted from its own start. Pictures are `size` pixels wide.
    """
    cuts = blocks(count, batch)
    per_stretch = max(1, STRETCH_PIXELS // (size * size * batch))
    for first, last in pairwise([*range(0, len(cuts), per_stretch), len(cuts)]):
        start = cuts[first].start
        inner = [slice(cut.start - start, cut.stop - start) for cut in cuts[first:last]]
        yield slice(start, cuts[last - 1].stop), inner

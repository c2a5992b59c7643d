"""A data set in memory: uint8 pictures, labels, and the few facts that views and models need."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from semifl.learning.whitening import Rows

BLOCK = 4096  # pictures that are counted together
UNKNOWN = -1  # the label of a picture nobody has labeled
OwnView = Callable[[Tensor, torch.Generator], Tensor]  # uint8 [n, channels, size, size] in, and out


@dataclass(frozen=True)
class Facts:
    """What is known of the pictures as a whole."""

    class_names: tuple[str, ...]
    mean: tuple[float, ...]  # per channel, of pixel values in [0, 1]
    std: tuple[float, ...]
    may_flip: bool  # a mirrored picture is as good an example as the original
    channels: int
    size: int  # side of the square pictures, in pixels
    bits: int = 0  # of greys with more than eight, by the server's pictures; 0 if it has none
    # Filters that whiten patches of the server's pictures, where the model asks for them. They travel with an order, so
    # that every site has the hub's bits; a model file has them among its tensors instead.
    whitening: Rows | None = field(default=None, repr=False)
    # Identifies the backbone that the model stands on, where it has one: a site compares its own with the hub's.
    backbone: str | None = field(default=None, repr=False)
    # Features instead of pictures, where those of a model's frozen part are known: what normalising gives.
    lookup: Callable[[Tensor], Tensor] | None = field(default=None, repr=False)
    # A person's own views instead of ours. They are code and no facts: a model file leaves them out.
    weak_view: OwnView | None = field(default=None, repr=False)
    strong_view: OwnView | None = field(default=None, repr=False)

    @property
    def classes(self) -> int:
        return len(self.class_names)


@dataclass(frozen=True)
class Dataset:
    """Training and test pictures as they come from disk, before anybody decides who holds what."""

    facts: Facts
    images: Tensor  # uint8 [n, channels, size, size]
    labels: Tensor  # int64 [n], UNKNOWN where there is none
    test_images: Tensor
    test_labels: Tensor
    labeled: Tensor | None = None  # positions of the server's pictures, where the data come split already
    sites: tuple[str, ...] = ()  # names of the places that hold the unlabeled pictures, where they come by site
    site_of: Tensor | None = None  # int64 [n], position in `sites`, UNKNOWN for the server's pictures
    names: tuple[str, ...] = ()  # of the pictures, where they are a person's own: files, or places in arrays
    test_names: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()  # unreadable files that were left out because the user said so


class Source(Protocol):
    """What every file in `datasets/` offers: a frozen dataclass whose fields are its TOML keys."""

    def load(self) -> Dataset:
        """Read everything into memory, or raise a UserError that says in one sentence what to put where."""
        ...


def moments(images: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of uint8 pictures, as values in [0, 1]."""
    # A histogram per channel gives exact integer sums without a float copy of all the pictures.
    levels = torch.arange(256, dtype=torch.float64) / 255
    means, stds = [], []
    for channel in range(images.shape[1]):
        # Block by block: a channel of all pictures may be more than there is memory for.
        parts = [torch.bincount(block[:, channel].reshape(-1), minlength=256) for block in torch.split(images, BLOCK)]
        counts = torch.stack(parts).sum(dim=0).double()
        mean = (counts * levels).sum() / counts.sum()
        variance = (counts * (levels - mean) ** 2).sum() / counts.sum()
        means.append(float(mean))
        stds.append(max(float(variance.sqrt()), 1e-6))
    return tuple(means), tuple(stds)

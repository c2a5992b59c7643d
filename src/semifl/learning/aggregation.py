"""From the clients' changes to one: the mean, and three that a few bad clients cannot carry away.

The mean folds replies in as they come and holds two copies of the model, whatever the cohort. The others must see all
replies before they can judge one, so their memory grows with the cohort.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from semifl.fields import Checked, Choice, Range
from semifl.learning.weights import Weights, average, norm, scale


@dataclass(frozen=True)
class Mean:
    """Every client alike."""

    def __call__(self, changes: Iterable[Weights]) -> Weights | None:
        """One change from those of the clients, or None if there are none."""
        return average((change, 1.0) for change in changes)


@dataclass(frozen=True)
class Clipped:
    """The mean after each change has been shortened until it is no longer than the median one."""

    def __call__(self, changes: Iterable[Weights]) -> Weights | None:
        everything = list(changes)
        if not everything:
            return None
        bound = _middle([norm(change) for change in everything])
        return average((_shortened(change, bound), 1.0) for change in everything)


@dataclass(frozen=True)
class Median:
    """The median, entry by entry."""

    def __call__(self, changes: Iterable[Weights]) -> Weights | None:
        everything = list(changes)
        return {name: _median([each[name] for each in everything]) for name in everything[0]} if everything else None


@dataclass(frozen=True)
class Trimmed(Checked):
    """The mean without the largest and the smallest, entry by entry."""

    share: Annotated[float, Range(0, 0.5, open_most=True)] = 0.2  # of the changes dropped at each end

    def __call__(self, changes: Iterable[Weights]) -> Weights | None:
        everything = list(changes)
        if not everything:
            return None
        return {name: _trimmed_mean([each[name] for each in everything], self.share) for name in everything[0]}


AGGREGATIONS = {"mean": Mean, "clipped": Clipped, "median": Median, "trimmed": Trimmed}
Aggregation = Annotated[Mean | Clipped | Median | Trimmed, Choice(AGGREGATIONS)]


def with_server(server: Weights, clients: Weights | None, share: float = 0.5) -> Weights:
    """The server's model and the clients' mean as one; what clients keep, such as their norms, is the server's."""
    if clients is None:
        return server
    return {name: torch.lerp(clients[name], own, share) if name in clients else own for name, own in server.items()}


def _shortened(change: Weights, bound: float) -> Weights:
    length = norm(change)
    return change if length <= bound else scale(change, bound / length)


def _middle(values: list[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]


def _median(tensors: list[Tensor]) -> Tensor:
    """The middle value of each entry, or the mean of the two in the middle."""
    ordered = torch.stack(tensors).sort(dim=0).values
    count = len(tensors)
    return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2


def _trimmed_mean(tensors: list[Tensor], share: float) -> Tensor:
    """The mean of each entry without the largest and smallest `share` of the replies, but of one at least."""
    count = len(tensors)
    dropped = min(math.ceil(share * count), (count - 1) // 2)
    ordered = torch.stack(tensors).sort(dim=0).values
    return ordered[dropped : count - dropped].mean(dim=0)

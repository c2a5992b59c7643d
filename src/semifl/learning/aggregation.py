"""From the clients' changes to one: the mean, and three that a few bad clients cannot carry away.

The mean folds replies in as they come and holds two copies of the model, whatever the cohort. The others must see all
replies before they can judge one, so their memory grows with the cohort.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Literal

import torch
from torch import Tensor

from semifl.learning.weights import Weights, average, norm, scale

Aggregation = Literal["mean", "clipped", "median", "trimmed"]


def aggregate(kind: Aggregation, changes: Iterable[Weights], trim: float) -> Weights | None:
    """One change from those of the clients, or None if there are none.

    `clipped` shortens each until it is no longer than the median one; `trimmed` drops the share `trim` of them at each
    end, entry by entry.
    """
    if kind == "mean":
        return average((change, 1.0) for change in changes)
    everything = list(changes)
    if not everything:
        return None
    if kind == "clipped":
        bound = _middle([norm(change) for change in everything])
        return average((_shortened(change, bound), 1.0) for change in everything)
    if kind == "median":
        return {name: _median([each[name] for each in everything]) for name in everything[0]}
    return {name: _trimmed_mean([each[name] for each in everything], trim) for name in everything[0]}


def with_server(server: Weights, clients: Weights | None, share: float = 0.5) -> Weights:
    """The server's model and the clients' mean as one; all the server's if no client answered."""
    if clients is None:
        return server
    return {name: torch.lerp(clients[name], server[name], share) for name in server}


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


def _trimmed_mean(tensors: list[Tensor], trim: float) -> Tensor:
    """The mean of each entry without the largest and smallest `trim` share of the replies, but of one at least."""
    count = len(tensors)
    dropped = min(math.ceil(trim * count), (count - 1) // 2)
    ordered = torch.stack(tensors).sort(dim=0).values
    return ordered[dropped : count - dropped].mean(dim=0)

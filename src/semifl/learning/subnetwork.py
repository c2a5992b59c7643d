"""Sub-networks of HeteroFL (Diao et al. 2021): the first channels of every hidden layer, cut from the whole weights.

The picture's channels and the classes stay whole. They are told from hidden channels by where they are: the former are
the inputs of the first matrix, the latter the outputs of the last one and all that follows it, which is its bias.
"""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from semifl.learning.layers import narrowed
from semifl.learning.weights import Shapes, Weights, shapes, zeros_like


def output_layer(weights: Weights) -> list[str]:
    """The names of the last layer's tensors, whose rows are classes."""
    names = list(weights)
    return names[names.index(_matrices(weights)[-1]) :]


def narrow_shapes(weights: Weights, share: float) -> Shapes:
    """What a sub-network with this share of the channels looks like."""
    if share == 1:
        return shapes(weights)
    first, last = _matrices(weights)[0], output_layer(weights)
    narrow: Shapes = {}
    for name, tensor in weights.items():
        size = [narrowed(n, share) for n in tensor.shape[:2]] + list(tensor.shape[2:])  # kernels stay whole
        if name == first:
            size[1] = tensor.shape[1]
        if name in last:
            size[0] = tensor.shape[0]
        narrow[name] = tuple(size), tensor.dtype
    return narrow


def cut(weights: Weights, narrow: Shapes) -> Weights:
    """The sub-network of these shapes; what is not cut is not copied."""
    return {name: weights[name][_corner(size)].contiguous() for name, (size, _) in narrow.items()}


def average_over_holders(changes: Iterable[tuple[Weights, Tensor | None]], start: Weights) -> Weights | None:
    """Entry by entry the mean change over the clients that hold it; 0 where nobody does; None if there is no client.

    Each comes with the classes its client holds (None: all); of the last layer that holds their rows alone. Folded as
    they come: memory is that of two models of the form of `start`, however many clients.
    """
    total, holders = zeros_like(start), zeros_like(start)
    rows = output_layer(start)
    empty = True
    for change, classes in changes:
        empty = False
        for name, part in change.items():
            corner = _corner(part.shape)
            if classes is not None and name in rows:
                held = classes.to(part.dtype).view(-1, *[1] * (part.dim() - 1))
                total[name][corner] += held * part
                holders[name][corner] += held
            else:
                total[name][corner] += part
                holders[name][corner] += 1
    if empty:
        return None
    return {name: total[name] / holders[name].clamp(min=1) for name in start}


def _matrices(weights: Weights) -> list[str]:
    return [name for name, tensor in weights.items() if tensor.dim() > 1]


def _corner(size: Iterable[int]) -> tuple[slice, ...]:
    return tuple(slice(n) for n in size)

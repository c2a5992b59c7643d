"""BatchNorm statistics of few pictures, corrected by how those of many others differ, which ride along with updates.

The server has few pictures, and its clients' may look otherwise. Asking clients for their statistics before each round
costs a second transfer of the model. Instead a client sends them with its update, in units of those it was sent, and
they correct the server's own from the next round on.
"""

from __future__ import annotations

import torch

from semifl.learning.batchnorm import BatchNormStats, Moments
from semifl.learning.weights import Weights

SHIFT, SQUARE = "shift of ", "square of "  # before a layer's name: no parameter has a space in its name
SMALLEST = 0.05  # of a variance, so that no average of changes makes one vanish
DEAD = 1e-8  # variance up to which a channel says the same of all the server's pictures and is no unit for others'


def unchanged(stats: BatchNormStats) -> Weights:
    """Of a client whose statistics are those it was sent, and the correction before anybody answered."""
    return {
        **{SHIFT + name: torch.zeros(len(each.mean)) for name, each in stats.items()},
        **{SQUARE + name: torch.ones(len(each.mean)) for name, each in stats.items()},
    }


def measured(own: BatchNormStats, sent: BatchNormStats) -> Weights:
    """A client's: how far its means lie off, in standard deviations, and its mean squares from there, in variances.

    Both are averages over pictures, so the average over clients is that of all their pictures together, with what their
    means differ by among themselves. A channel that is dead at the server stays as it was sent.
    """
    found = unchanged(sent)
    for name in sent.keys() & own.keys():
        (_, mean, var), (_, theirs, variance) = sent[name], own[name]
        alive = var > DEAD
        shift, square = (theirs - mean) / var.sqrt(), (variance + (theirs - mean) ** 2) / var
        found[SHIFT + name] = shift.where(alive, 0.0).float()
        found[SQUARE + name] = square.where(alive, 1.0).float()
    return found


def corrected(stats: BatchNormStats, correction: Weights) -> BatchNormStats:
    """The server's statistics as its clients' pictures would have them."""
    return {
        name: Moments(number, mean + correction[SHIFT + name] * var.sqrt(), correction[SQUARE + name] * var)
        if SHIFT + name in correction
        else Moments(number, mean, var)
        for name, (number, mean, var) in stats.items()
    }


def learned(correction: Weights, change: Weights, rate: float) -> Weights:
    """The correction after the clients' mean change of `unchanged`, taken at `rate` (1: all of it)."""
    new = dict(correction)
    for name in (each.removeprefix(SHIFT) for each in correction if each.startswith(SHIFT)):
        shift, square = change[SHIFT + name], 1 + change[SQUARE + name]
        variance = (square - shift**2).clamp(min=SMALLEST)
        # What a client measures is in units of what it was sent, which the correction has stretched already.
        new[SHIFT + name] = correction[SHIFT + name] + rate * shift * correction[SQUARE + name].sqrt()
        new[SQUARE + name] = correction[SQUARE + name] * variance**rate
    return new

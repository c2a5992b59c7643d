"""Arithmetic on the weights of a model: average, momentum step, norm, digest."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from semifl.learning.batchnorm import BatchNormStats

Weights = dict[str, Tensor]
Shapes = dict[str, tuple[tuple[int, ...], torch.dtype]]  # what valid weights look like


class Snapshot(NamedTuple):
    """A model as it travels: weights, and the statistics its BatchNorm layers use for inference."""

    weights: Weights
    stats: BatchNormStats


class Fold:
    """A weighted mean, folded in as its terms come: two copies in memory, however many terms."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._total: list[Tensor] = []
        self._mass = 0.0

    def add(self, weights: Weights, weight: float = 1.0) -> None:
        if not self._total:
            self._names = list(weights)
            self._total = list(torch._foreach_mul(list(weights.values()), weight))
        else:
            torch._foreach_add_(self._total, [weights[name] for name in self._names], alpha=weight)
        self._mass += weight

    def mean(self) -> Weights | None:
        """None if nothing was added. Ends the fold."""
        if not self._total:
            return None
        torch._foreach_div_(self._total, self._mass)
        return dict(zip(self._names, self._total, strict=True))


def average(weighted: Iterable[tuple[Weights, float]], max_share: float = 1.0) -> Weights | None:
    """Return the weighted mean, None of nothing; one term has `max_share` of the mass at most, where that can be.

    Less than 1 needs all terms at once; else two copies are in memory, however many terms.
    """
    if max_share < 1:
        terms = list(weighted)
        shares = bound_shares([weight for _, weight in terms], max_share)
        weighted = ((weights, share) for (weights, _), share in zip(terms, shares, strict=True))
    fold = Fold()
    for weights, weight in weighted:
        fold.add(weights, weight)
    return fold.mean()


def bound_shares(weights: Sequence[float], max_share: float) -> list[float]:
    """Return weights of which none is more than `max_share` of their sum; too few for that become equal."""
    ordered = sorted(weights, reverse=True)
    for count in range(len(ordered)):  # of the largest, which are lowered to one bound
        if max_share * count >= 1:
            break
        bound = max_share * sum(ordered[count:]) / (1 - max_share * count)
        if ordered[count] <= bound:
            return [min(weight, bound) if count else weight for weight in weights]
    return [min(weights, default=0.0)] * len(weights)


def add(a: Weights, b: Weights) -> Weights:
    return {name: a[name] + b[name] for name in a}


def changed(weights: Weights, sent: Weights) -> Weights:
    """The difference to what was sent, of as much of it as was."""
    return {name: weights[name] - tensor for name, tensor in sent.items()}


def moved(start: Weights, change: Weights | None) -> Weights | None:
    """`start` after a change of some or all of it; None where nothing has changed."""
    return None if change is None else start | {name: start[name] + tensor for name, tensor in change.items()}


def scale(weights: Weights, factor: float) -> Weights:
    return {name: factor * tensor for name, tensor in weights.items()}


def momentum_step(
    start: Weights, target: Weights | None, velocity: Weights, momentum: float
) -> tuple[Weights, Weights]:
    """One SGD step of rate 1 from `start`, the gradient being `start − target`; without a target nothing moves.

    With momentum 0 the result is the target itself, as in the paper's Algorithm 1.
    """
    if target is None:
        return start, velocity
    if momentum == 0:  # exactly, not up to the rounding of start − (start − target)
        return target, {name: start[name] - target[name] for name in start}
    new_velocity = {name: momentum * velocity[name] + (start[name] - target[name]) for name in start}
    return {name: start[name] - new_velocity[name] for name in start}, new_velocity


def shapes(weights: Weights) -> Shapes:
    return {name: (tuple(tensor.shape), tensor.dtype) for name, tensor in weights.items()}


def misfit(weights: Weights, expected: Shapes) -> str:
    """Why these are no weights of that model, or nothing."""
    if weights.keys() != expected.keys():
        odd = sorted(weights.keys() ^ expected.keys())
        return f"its names differ from the model's at {odd[0]!r}"
    for name, tensor in weights.items():
        if (tuple(tensor.shape), tensor.dtype) != expected[name]:
            shape, dtype = expected[name]
            return f"{name!r} is {tuple(tensor.shape)} {tensor.dtype} and should be {shape} {dtype}"
    return ""


def fault(weights: Weights, expected: Shapes) -> str:
    """Why these weights must not enter an average, or nothing."""
    if reason := misfit(weights, expected):
        return reason
    if not is_finite(weights):
        name = next(name for name, tensor in weights.items() if not bool(tensor.isfinite().all()))
        return f"{name!r} has values that are not finite"
    return ""


def is_finite(weights: Weights) -> bool:
    # A sum is not finite if any term is not; summing is several times cheaper than testing each.
    return all(math.isfinite(float(tensor.sum())) or bool(tensor.isfinite().all()) for tensor in weights.values())


def zeros_like(weights: Weights) -> Weights:
    return {name: torch.zeros_like(tensor) for name, tensor in weights.items()}


def norm(weights: Weights) -> float:
    """The Euclidean norm of all entries."""
    squares = [torch.linalg.vector_norm(tensor.double()) ** 2 for tensor in weights.values()]
    return float(torch.stack(squares).sum().sqrt()) if squares else 0.0


def distance(a: Weights, b: Weights) -> float:
    return norm(changed(a, b))


def digest(weights: Weights) -> str:
    """A short fingerprint of names, shapes and bits."""
    fingerprint = hashlib.sha256()
    for name, tensor in weights.items():
        fingerprint.update(f"{name}{tuple(tensor.shape)}{tensor.dtype}".encode())
        fingerprint.update(tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return fingerprint.hexdigest()[:16]

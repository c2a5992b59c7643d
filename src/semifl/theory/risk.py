"""The excess risk of a box-kernel classifier, without test labels: closed form along x₁, lines for the rest."""

from __future__ import annotations

import numpy as np

from semifl.theory.kernel import BoxKernel, Floats
from semifl.theory.problem import Problem

LINES = 64


def excess_risk(problem: Problem, model: BoxKernel, lines: int = LINES) -> float:
    """E_l[|2m(X) − 1|; Ĉ(X) ≠ C(X)]: exact for d = 1, and for d > 1 the mean of exact integrals along lines."""
    others = lattice(problem.d - 1, lines if problem.d > 1 else 1)
    return float(np.mean([_along(problem, model, line) for line in others]))


def lattice(dimension: int, n: int) -> Floats:
    """n evenly spread points of [0, 1]^dimension: multiples of the generalised golden ratio's powers."""
    ratio = 2.0
    for _ in range(64):
        ratio = (1 + ratio) ** (1 / (dimension + 1))  # the root of ratio^(dimension + 1) = ratio + 1
    steps = ratio ** -np.arange(1.0, dimension + 1)
    return np.asarray((0.5 + np.arange(n)[:, None] * steps) % 1)


def _along(problem: Problem, model: BoxKernel, line: Floats) -> float:
    inner, classes = model.along(line)
    edges = np.concatenate([[0.0], np.clip(inner, 0, 1), [1.0]])
    # Class 1 is wrong below the boundary and class 0 above it.
    below = np.diff(problem.excess_below(np.minimum(edges, 0.5)))
    above = np.diff(problem.excess_below(np.maximum(edges, 0.5)))
    return float(np.where(classes == 1, below, above).sum())

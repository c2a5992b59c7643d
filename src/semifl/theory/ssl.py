"""The generic semi-supervised classifier with strong augmentation: Steps 1–3, and labels alone beside it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semifl.theory.kernel import BoxKernel, Floats, Ints
from semifl.theory.problem import Generator, Problem
from semifl.theory.theorem import Exponents

Estimate = Callable[[Floats], Floats]
Augmentation = Callable[[Floats, Generator], Floats]


@dataclass(frozen=True)
class Initial:
    """m̂₀: the truth with an error of exactly the size (A6) allows, a wave that is the same on both sides.

    It stands for an estimate from n_0 labels with rate r; that it does not know sides apart keeps the label law.
    """

    problem: Problem
    n0: float
    r: float = 0.5
    c8: float = 0.25
    waves: float = 40.0

    @property
    def error(self) -> float:
        """c₈ n_0^−r, the bound of (A6)."""
        return self.c8 / float(self.n0**self.r)

    def __call__(self, x: Floats) -> Floats:
        m = self.problem.m(x)
        u = self.problem.level(x) + self.error * np.cos(self.waves * (2 * x[:, 0] - 1))
        return np.where(m >= 0.5, 1 - np.clip(u, 0, 1), np.clip(u, 0, 1))


def confident(initial: Estimate, x: Floats, delta: float) -> NDArray[np.bool_]:
    """Step 1: min{m̂₀, 1 − m̂₀} ≤ δ."""
    m = initial(x)
    return np.asarray(np.minimum(m, 1 - m) <= delta)


def pseudo_label(initial: Estimate, x: Floats) -> Ints:
    """Step 2: Ŷ = 1{m̂₀ ≥ 1/2}."""
    return (initial(x) >= 0.5).astype(np.int64)


def semi_supervised(
    labeled: tuple[Floats, Ints],
    unlabeled: Floats,
    initial: Estimate,
    augment: Augmentation,
    delta: float,
    h: float,
    rng: Generator,
) -> BoxKernel:
    """Steps 1–3: D_semi = labeled points and the augmented confident ones with their pseudo-labels."""
    chosen = unlabeled[confident(initial, unlabeled, delta)]
    carried = augment(chosen, rng)
    points = np.concatenate([labeled[0], carried])
    labels = np.concatenate([labeled[1], pseudo_label(initial, chosen)])
    return BoxKernel(points, labels, h)


@dataclass(frozen=True)
class Schedule:
    """δ_n and h_n at the theorem's rates, times constants that the theorem leaves open."""

    exponents: Exponents
    delta_scale: float = 0.5
    h_scale: float = 0.5

    def delta(self, n_u: float) -> float:
        return float(self.delta_scale * n_u ** -(self.exponents.q * self.exponents.bandwidth))

    def h(self, n_u: float) -> float:
        return float(self.h_scale * n_u**-self.exponents.bandwidth)

    def supervised_h(self, n_l: float) -> float:
        return float(self.h_scale * n_l**-self.exponents.supervised_bandwidth)

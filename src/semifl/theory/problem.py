"""A family of problems on [0, 1]^d in which every constant of (A1)–(A5) is known; docs/theory.md derives them.

The first coordinate decides: with z = 2x₁ − 1, m(x) = 1/2 + sign(z)|z|^q / 2. The other coordinates are uniform.
The margin of a point is M = |m − 1/2|, its level u = min{m, 1 − m} = 1/2 − M, its side the sign of z.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from semifl.errors import UserError
from semifl.theory.kernel import Floats, Ints

Generator = np.random.Generator
Lean = Callable[[Floats, Floats], Floats]  # from margins in the core and levels outside it


def honest(margin: Floats, u: Floats) -> Floats:
    return np.ones(len(margin))


@dataclass(frozen=True)
class Problem:
    """The labeled law lives in the core c ≤ m ≤ 1 − c; unlabeled points are also found where m is near 0 or 1."""

    alpha: float = 1.0  # margin exponent, (A4)
    q: float = 1.0  # smoothness, (A5); at most 1
    d: int = 1
    s: float = 0.5  # tail sufficiency, (A1)
    v: float = 0.5  # coverage of the augmentation, (A3)
    c: float = 0.25  # the level at which the core ends
    easy: float = 0.8  # share of unlabeled points outside the core
    tilt: float = 0.5  # P(side +) − P(side −) under the labeled law; without it the boundary's bias cancels

    def __post_init__(self) -> None:
        for holds, sentence in [
            (self.alpha > 0, "alpha must be positive"),
            (0 < self.q <= 1, "q must be above 0 and at most 1 (a larger q forces m to be constant)"),
            (self.d >= 1, "d must be at least 1"),
            (self.s > 0, "s must be positive"),
            (self.v >= 0, "v must not be negative"),
            (0 < self.c < 0.5, "c must lie between 0 and 1/2"),
            (0 < self.easy <= 1, "easy must be above 0 and at most 1"),
            (-1 < self.tilt < 1, "tilt must lie between -1 and 1"),
        ]:
            if not holds:
                raise UserError(f"problem: {sentence}")

    # What is known about the law.

    def m(self, x: Floats) -> Floats:
        """P(Y = 1 | X = x)."""
        z = 2 * x[:, 0] - 1
        return np.asarray(0.5 + 0.5 * np.sign(z) * np.abs(z) ** self.q)

    def level(self, x: Floats) -> Floats:
        """u = min{m, 1 − m}: how far from certain the label is."""
        return np.asarray(0.5 - 0.5 * np.abs(2 * x[:, 0] - 1) ** self.q)

    def bayes(self, x: Floats) -> Ints:
        """C(x) = 1{m(x) ≥ 1/2}."""
        return (x[:, 0] >= 0.5).astype(np.int64)

    @property
    def widest(self) -> float:
        """The largest margin in the core."""
        return 0.5 - self.c

    @property
    def mean_margin(self) -> float:
        """E M under the labeled law: M / widest is the (1/α)-th power of a uniform number."""
        return self.widest * self.alpha / (self.alpha + 1)

    @property
    def c1(self) -> float:
        """(A1), with equality for δ ≤ c: P_u(min{m, 1 − m} ≤ δ) = c₁ δ^s."""
        return self.easy / float(self.c**self.s)

    def c2(self, error: float = 0.0) -> float:
        """(A3): P(X̃ ∈ B | selected) ≥ c₂ δ^v P_l(B), if m̂₀ errs by at most `error`·δ; with 0, equality in the core."""
        return self.s / (self.s + self.v) * float((1 - error) ** (self.s + self.v) / (1 + error) ** self.s)

    @property
    def c6(self) -> float:
        """(A4), with equality for t ≤ widest: P_l(|m − 1/2| ≤ t) = c₆ t^α."""
        return 1 / float(self.widest**self.alpha)

    @property
    def c7(self) -> float:
        """(A5), attained by mirrored points: |m(x) − m(x')| ≤ c₇ ‖x − x'‖^q."""
        return 1.0

    def positive_side(self, u: Floats) -> Floats:
        """P(side + | level u) among easy points: the mean of (m(X̃) − u)/(1 − 2u) over the labeled law."""
        return np.asarray(0.5 + self.tilt * self.mean_margin / (1 - 2 * u))

    def excess_below(self, x1: Floats) -> Floats:
        """G with G(b) − G(a) = E_l[|2m − 1|; a < X₁ ≤ b], and G = 0 at the boundary."""
        z = 2 * x1 - 1
        margin = np.minimum(0.5 * np.abs(z) ** self.q, self.widest)
        side = np.where(z >= 0, 1 + self.tilt, -(1 - self.tilt)) / 2
        return np.asarray(side * 2 * self.mean_margin * (margin / self.widest) ** (self.alpha + 1))

    # Sampling.

    def covariates(self, n: int, rng: Generator) -> Floats:
        """Draws from P_l, which is also the law of test points."""
        return self._place(*self._core(n, rng), rng)

    def labeled(self, n: int, rng: Generator) -> tuple[Floats, Ints]:
        x = self.covariates(n, rng)
        return x, self.label(x, rng)

    def label(self, x: Floats, rng: Generator) -> Ints:
        return (rng.random(len(x)) < self.m(x)).astype(np.int64)

    def unlabeled(self, n: int, rng: Generator) -> Floats:
        """Draws from P_u: easy points, and a rest from P_l."""
        margin, side = self._core(n, rng)
        u = self.c * rng.random(n) ** (1 / self.s)
        easy_side = np.where(rng.random(n) < self.positive_side(u), 1, -1)
        easy = rng.random(n) < self.easy
        return self._place(np.where(easy, 0.5 - u, margin), np.where(easy, easy_side, side), rng)

    def augment(self, x: Floats, rng: Generator, lean: Lean = honest) -> Floats:
        """X → X̃: an easy point at level u is carried into the core with probability u^v, else it stays.

        Given (X̃, u) the side of X is + with probability (m(X̃) − u)/(1 − 2u), whence E[Ỹ | X̃, u] = m(X̃).
        Another `lean` puts 1/2 + lean·(m(X̃) − 1/2) in the place of m(X̃) in both.
        """
        u = self.level(x)
        moves = (u < self.c) & (rng.random(len(x)) < u**self.v)
        carried = x.copy()
        carried[moves] = self._carry(u[moves], x[moves, 0] >= 0.5, rng, lean)
        return carried

    def _carry(self, u: Floats, positive: NDArray[np.bool_], rng: Generator, lean: Lean) -> Floats:
        margin, side = np.empty(len(u)), np.empty(len(u))
        waiting = np.arange(len(u))
        while len(waiting):
            # Draws from P_l, each accepted with the posterior of the side it has to stand for.
            drawn, drawn_side = margin[waiting], side[waiting] = self._core(len(waiting), rng)
            posterior = 0.5 + lean(drawn, u[waiting]) * drawn_side * drawn / (1 - 2 * u[waiting])
            accepted = rng.random(len(waiting)) < np.where(positive[waiting], posterior, 1 - posterior)
            waiting = waiting[~accepted]
        return self._place(margin, side, rng)

    def _core(self, n: int, rng: Generator) -> tuple[Floats, Floats]:
        margin = self.widest * rng.random(n) ** (1 / self.alpha)
        return margin, np.where(rng.random(n) < (1 + self.tilt) / 2, 1.0, -1.0)

    def _place(self, margin: Floats, side: Floats, rng: Generator) -> Floats:
        x = rng.random((len(margin), self.d))
        x[:, 0] = 0.5 + 0.5 * side * (2 * margin) ** (1 / self.q)
        return x

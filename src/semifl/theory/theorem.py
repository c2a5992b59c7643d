"""What the theorem says: its exponents, the critical ζ, the rates of δ_n and h_n, and what its assumptions ask for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Exponents:
    """The five numbers of the theorem: α (margin), q (smoothness), d, s (tail), v (coverage)."""

    alpha: float
    q: float
    d: int
    s: float
    v: float

    @property
    def rho(self) -> float:
        """Inadequacy of transmission, ρ = v + s."""
        return self.v + self.s

    @property
    def denominator(self) -> float:
        """q(α + 3 + ρ) + d."""
        return self.q * (self.alpha + 3 + self.rho) + self.d

    @property
    def supervised_denominator(self) -> float:
        """q(α + 3) + d: the same without transmission."""
        return self.q * (self.alpha + 3) + self.d

    @property
    def semi(self) -> float:
        """The risk of Steps 1–3 is at most of order n_u^−semi, (130)."""
        return self.q * (self.alpha + 1) / self.denominator

    @property
    def supervised(self) -> float:
        """The risk from labels alone is at most of order n_l^−supervised."""
        return self.q * (self.alpha + 1) / self.supervised_denominator

    @property
    def critical_zeta(self) -> float:
        """With n_l = n_u^ζ labels, unlabeled points win below this ζ, (131)."""
        return self.supervised_denominator / self.denominator

    @property
    def bandwidth(self) -> float:
        """h_n ~ n_u^−bandwidth; δ_n ~ h_n^q."""
        return 1 / self.denominator

    @property
    def supervised_bandwidth(self) -> float:
        return 1 / self.supervised_denominator

    @property
    def least_init_power(self) -> float:
        """With n_0 = n_u^χ, (A7) asks for χ·r above this."""
        return self.q / self.denominator


def violations(
    exponents: Exponents, r: float, init_power: float, delta: float = 0.0, c3: float = 0.5, reach: float = 0.5
) -> list[str]:
    """Which assumptions a choice breaks, one sentence each; n_0 = n_u^init_power, `reach` is the Δ of (A6)."""
    e = exponents
    tail = e.q * e.s / e.denominator
    rules = [
        (e.d >= 1, f"d = {e.d}: the dimension must be at least 1"),
        (e.s > 0, f"(A1): s = {e.s:g} must be positive"),
        (0 < c3 <= 0.5, f"(A2): c_3 = {c3:g} must lie between 0 and 1/2"),
        (e.v >= 0, f"(A3): v = {e.v:g} must not be negative"),
        (e.alpha > 0, f"(A4): α = {e.alpha:g} must be positive"),
        (e.q > 0, f"(A5): q = {e.q:g} must be positive"),
        (e.q <= 1, f"(A5): q = {e.q:g} above 1 makes m constant, so (A4) cannot hold with it"),
        (r > 0, f"(A6): r = {r:g} must be positive"),
        (reach > 0, f"(A6): Δ = {reach:g} must be positive"),
        (tail < 0.5, f"(A7), first part: qs/(q(α+3+v+s)+d) = {tail:.3f} is not below 1/2"),
        (
            init_power * r > e.least_init_power,
            f"(A7), second part: n_0 = n_u^{init_power:g} gives n_0^−r = n_u^−{init_power * r:.3f}, "
            f"which does not vanish against n_u^−{e.least_init_power:.3f}",
        ),
        (delta <= min(c3, reach, 0.25), f"δ = {delta:.3f} is above min(c_3, Δ, 1/4) = {min(c3, reach, 0.25):.3f}"),
    ]
    return [sentence for holds, sentence in rules if not holds]

"""What the published proof leaves open, measured; docs/theory.md explains each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from semifl.randomness import Seed
from semifl.theory.kernel import BoxKernel, Floats
from semifl.theory.problem import Generator, Problem
from semifl.theory.rates import fit, labels_for
from semifl.theory.risk import excess_risk
from semifl.theory.settings import Setting
from semifl.theory.ssl import Augmentation, Estimate, Initial, confident, semi_supervised

SETTING = Setting("gap", Problem(alpha=1, q=1, d=1, s=1, v=1, tilt=0.0), delta_scale=0.3)
ONE_SIDED = Setting("one-sided", Problem(alpha=1, q=1, d=1, s=1, v=0, tilt=0.0))
SIZES = tuple(2**power for power in (12, 14, 16, 18))


@dataclass(frozen=True)
class Misleading:
    """An augmentation with (A2), (A3) and E[Ỹ | X̃] = m(X̃) before selection, but labels turned round after it.

    Points at a level below `turn` are carried to where E[Ỹ | X̃] is 1 − m(X̃), the others to where it is as much too
    large as makes up for that. For problems without tilt, whose core is symmetric.
    """

    problem: Problem
    turn: float = 0.1

    @property
    def makeup(self) -> float:
        """Carried points below the turn for each one above it."""
        rho = self.problem.s + self.problem.v
        below, everyone = float(self.turn**rho), float(self.problem.c**rho)
        return below / (everyone - below)

    @property
    def reach(self) -> float:
        """Only margins up to this are touched, so that no probability leaves [u, 1 − u]."""
        return self.problem.widest / (1 + 2 * self.makeup)

    @property
    def limit(self) -> float:
        """The excess risk of being wrong at every margin within reach."""
        p = self.problem
        return float(2 * p.mean_margin * (self.reach / p.widest) ** (p.alpha + 1))

    def __call__(self, x: Floats, rng: Generator) -> Floats:
        return self.problem.augment(x, rng, self.lean)

    def lean(self, margin: Floats, u: Floats) -> Floats:
        turned = np.where(u <= self.turn, -1.0, 1 + 2 * self.makeup)
        return np.where(margin <= self.reach, turned, 1.0)


def label_law(n_u: int, repetitions: int = 10) -> tuple[float, float]:
    """Mean excess risk of Steps 1–3 with the family's augmentation, and with the misleading one."""
    problem, initial = SETTING.problem, SETTING.initial(n_u)
    return (
        float(_risks(n_u, repetitions, _given(initial), problem.augment).mean()),
        float(_risks(n_u, repetitions, _given(initial), Misleading(problem)).mean()),
    )


@dataclass(frozen=True)
class Shifted:
    """m̂₀ = m + error: within (A6), but it selects more points of one side than of the other."""

    problem: Problem
    error: float

    def __call__(self, x: Floats) -> Floats:
        return np.clip(self.problem.m(x) + self.error, 0, 1)


def shifted_slope(init_power: float, repetitions: int = 20, c8: float = 0.1) -> tuple[float, float, float]:
    """The fitted exponent and its interval when m̂₀ is shifted by c₈ n_0^−1/2 with n_0 = n_u^init_power."""
    problem = ONE_SIDED.problem
    starts = {n_u: Shifted(problem, c8 / float(n_u ** (init_power / 2))) for n_u in SIZES}
    risks = [_risks(n_u, repetitions, _given(start), problem.augment, ONE_SIDED) for n_u, start in starts.items()]
    return fit(SIZES, np.array(risks), Seed(0).numpy_at("theory", "gap", "bootstrap"))


def learned_start(n_u: int, repetitions: int = 10) -> tuple[float, float, float]:
    """Mean excess risk with a kernel estimate as m̂₀: from n_0 labels in P_l, in P_u, and in P_u but blind to sides."""
    problem = SETTING.problem
    n0 = labels_for(n_u, SETTING.init_power)
    h = SETTING.schedule.supervised_h(n0)

    def start(x: Floats, rng: Generator) -> Estimate:
        return BoxKernel(x, problem.label(x, rng), h).estimate

    starts: list[Callable[[Generator], Estimate]] = [
        lambda rng: start(problem.covariates(n0, rng), rng),
        lambda rng: start(problem.unlabeled(n0, rng), rng),
        lambda rng: _blind(start(problem.unlabeled(n0, rng), rng)),
    ]
    elsewhere, there, blind = (float(_risks(n_u, repetitions, each, problem.augment).mean()) for each in starts)
    return elsewhere, there, blind


def _blind(estimate: Estimate) -> Estimate:
    """The mean of the estimate and of its mirror image, so that both sides are selected alike; for d = 1."""
    return lambda x: (estimate(x) + 1 - estimate(1 - x)) / 2


def _given(estimate: Estimate) -> Callable[[Generator], Estimate]:
    """The same m̂₀ in every repetition."""
    return lambda rng: estimate


def _risks(
    n_u: int,
    repetitions: int,
    start: Callable[[Generator], Estimate],
    augment: Augmentation,
    setting: Setting = SETTING,
) -> Floats:
    problem, schedule = setting.problem, setting.schedule
    labels = labels_for(n_u, setting.exponents.critical_zeta / 2)
    risks = []
    for repetition in range(repetitions):
        rng = Seed(0).numpy_at("theory", "gap", n_u, repetition)
        labeled, unlabeled, initial = problem.labeled(labels, rng), problem.unlabeled(n_u, rng), start(rng)
        model = semi_supervised(labeled, unlabeled, initial, augment, schedule.delta(n_u), schedule.h(n_u), rng)
        risks.append(excess_risk(problem, model))
    return np.array(risks)


@dataclass(frozen=True)
class Emptiness:
    """The probability that none of the carried points is in reach of x₁ = 1/2."""

    measured: float
    published: float  # exp(−n_high P_u(B)), as (key4) prints it
    corrected: float  # exp(−n_high P(X̃ ∈ B | selected))


def emptiness(n_high: int = 200, h: float = 0.0125, repetitions: int = 1000) -> Emptiness:
    """(key4) with few easy points, so that P_u(B) is large where hardly any carried point falls."""
    problem = Problem(alpha=1, q=1, d=1, s=1, v=1, easy=0.2, tilt=0.0)
    delta = 0.1
    ball = problem.c6 * h**problem.alpha  # q = 1: the margin of x₁ is |x₁ − 1/2|
    rng = Seed(0).numpy_at("theory", "emptiness")
    exact = Initial(problem, n0=1e12)
    points = problem.unlabeled(round(1.3 * repetitions * n_high / (problem.c1 * delta)), rng)
    chosen = points[confident(exact, points, delta)][: repetitions * n_high]
    carried = problem.augment(chosen, rng).reshape(repetitions, n_high)
    empty = (np.abs(carried - 0.5) > h).all(axis=1)
    selected = problem.c2() * delta**problem.v * ball
    return Emptiness(
        measured=float(empty.mean()),
        published=float(np.exp(-n_high * (1 - problem.easy) * ball)),
        corrected=float(np.exp(-n_high * selected)),
    )


def table() -> str:
    """All measurements, as text."""
    limit = Misleading(SETTING.problem).limit
    lines = [
        "The label law after selection does not follow from (A1)–(A7): excess risk",
        f"{'n_u':>8} {'family':>9} {'misleading':>11}   (the misleading one as h → 0: {limit:.4f})",
    ]
    for n_u in SIZES:
        honest, misleading = label_law(n_u)
        lines.append(f"{n_u:>8} {honest:>9.4f} {misleading:>11.4f}")
    lines += ["A side-dependent error in m̂₀ that (A6) and (A7) allow: fitted exponent"]
    for init_power in (0.4, 0.8):
        fitted, low, high = shifted_slope(init_power)
        lines.append(
            f"n_0 = n_u^{init_power}: {fitted:.3f} ({low:.3f} to {high:.3f}), predicted {ONE_SIDED.exponents.semi:.3f}"
        )
    seen = emptiness()
    lines += [
        "(A6) with a kernel estimate as m̂₀: excess risk",
        f"{'n_u':>8} {'from P_l':>9} {'from P_u':>9} {'from P_u, blind to sides':>25}",
        *("{:>8} {:>9.4f} {:>9.4f} {:>25.4f}".format(n_u, *learned_start(n_u)) for n_u in SIZES[:3]),
        "(key4): probability that no carried point is in reach",
        f"measured {seen.measured:.3f}; as printed {seen.published:.5f}; with the law of X̃ {seen.corrected:.3f}",
    ]
    return "\n".join(lines)

"""How fast the risk falls: log–log slopes with intervals over repetitions, beside the theorem's exponents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from semifl.randomness import Seed
from semifl.theory.cells import Repetition
from semifl.theory.kernel import Floats
from semifl.theory.settings import Setting

QUICK_SIZES = tuple(2**power for power in range(10, 15))
BOOTSTRAP = 2000
LEAST_RISK = 1e-12  # a risk of exactly 0 has no logarithm


@dataclass(frozen=True)
class Plan:
    """What is measured for every setting."""

    repetitions: int = 40
    quick: bool = False
    seed: int = 0

    def sizes(self, setting: Setting) -> tuple[int, ...]:
        return QUICK_SIZES if self.quick else setting.sizes

    def supervised(self, setting: Setting) -> list[list[Repetition]]:
        """For every size, its repetitions with that many labels."""
        return [
            [Repetition(setting, n, 0, repetition, self.seed) for repetition in range(self.repetitions)]
            for n in self.sizes(setting)
        ]

    def semi(self, setting: Setting) -> list[list[Repetition]]:
        """For every size, its repetitions with that many unlabeled points and few labels: half the critical ζ."""
        zeta = setting.exponents.critical_zeta / 2
        return [
            [
                Repetition(setting, labels_for(n, zeta), n, repetition, self.seed)
                for repetition in range(self.repetitions)
            ]
            for n in self.sizes(setting)
        ]

    def cells(self, settings: Sequence[Setting]) -> list[Repetition]:
        groups = [group for each in settings for group in (*self.supervised(each), *self.semi(each))]
        return [cell for group in groups for cell in group]


def labels_for(unlabeled: int, zeta: float) -> int:
    """n_l = n_u^ζ."""
    return max(1, round(float(unlabeled**zeta)))


@dataclass(frozen=True)
class Slope:
    """A fitted exponent: risk ~ n^−fitted, with a 95 % interval, beside the predicted one."""

    setting: Setting
    kind: str
    predicted: float
    fitted: float
    low: float
    high: float
    sizes: tuple[int, ...]
    risks: Floats  # (sizes, repetitions)

    @property
    def confirmed(self) -> bool:
        """The theorem is an upper bound: the risk must fall at least as fast, within the interval."""
        return self.high >= self.predicted


def slopes(settings: Sequence[Setting], plan: Plan, risks: Mapping[Repetition, float]) -> list[Slope]:
    """Both classifiers of every setting."""
    found = []
    for setting in settings:
        for kind, groups, predicted in [
            ("semi-supervised", plan.semi(setting), setting.exponents.semi),
            ("supervised", plan.supervised(setting), setting.exponents.supervised),
        ]:
            table = np.array([[risks[cell] for cell in group] for group in groups])
            rng = Seed(plan.seed).numpy_at("theory", "bootstrap", setting.digest, kind)
            fitted, low, high = fit(plan.sizes(setting), table, rng)
            found.append(Slope(setting, kind, predicted, fitted, low, high, plan.sizes(setting), table))
    return found


def fit(sizes: Sequence[int], risks: Floats, rng: np.random.Generator) -> tuple[float, float, float]:
    """The exponent of the mean risk by least squares, and its 95 % interval by resampling repetitions at every size."""
    repetitions = risks.shape[1]
    draws = rng.integers(repetitions, size=(BOOTSTRAP, *risks.shape))
    resampled = np.take_along_axis(risks[None], draws, axis=2).mean(axis=2)
    low, high = np.quantile(_exponent(sizes, resampled), [0.025, 0.975])
    return float(_exponent(sizes, risks.mean(axis=1)[None])[0]), float(low), float(high)


def _exponent(sizes: Sequence[int], means: Floats) -> Floats:
    x = np.log(np.asarray(sizes, dtype=float))
    x -= x.mean()
    return np.asarray(-(np.log(np.maximum(means, LEAST_RISK)) @ x) / (x @ x))


def table(found: Sequence[Slope]) -> str:
    """Predicted beside fitted, as text."""
    header = (
        f"{'setting':<12} {'α':>4} {'q':>4} {'d':>2} {'s':>4} {'v':>4}  {'classifier':<16}"
        f"{'predicted':>9} {'fitted':>7}  95 % interval"
    )
    lines = [header]
    for slope in found:
        p = slope.setting.problem
        name = slope.setting.name if "=" not in slope.setting.name else "(yours)"
        lines.append(
            f"{name:<12} {p.alpha:>4g} {p.q:>4g} {p.d:>2} {p.s:>4g} {p.v:>4g}  {slope.kind:<16}"
            f"{slope.predicted:>9.3f} {slope.fitted:>7.3f}  {slope.low:.3f} to {slope.high:.3f}"
            f"  {'as steep or steeper' if slope.confirmed else 'FLATTER'}"
        )
    return "\n".join(lines)

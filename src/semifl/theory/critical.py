"""When do unlabeled points win? The gain over labels alone as the number of labels n_l = n_u^ζ grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from semifl.theory.cells import Repetition
from semifl.theory.kernel import Floats
from semifl.theory.rates import labels_for
from semifl.theory.settings import Setting

ZETAS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True)
class CriticalSweep:
    """For every ζ and n_u: labels alone, and the same labels with n_u unlabeled points."""

    repetitions: int = 20
    quick: bool = False
    seed: int = 0

    @property
    def zetas(self) -> tuple[float, ...]:
        return ZETAS[::2] if self.quick else ZETAS

    def sizes(self, setting: Setting) -> tuple[int, ...]:
        return (2**10, 2**12) if self.quick else setting.sizes[1::2]

    def _group(self, setting: Setting, n_u: int, zeta: float, with_unlabeled: bool) -> list[Repetition]:
        labels = labels_for(n_u, zeta)
        unlabeled = n_u if with_unlabeled else 0
        return [Repetition(setting, labels, unlabeled, repetition, self.seed) for repetition in range(self.repetitions)]

    def cells(self, settings: Sequence[Setting]) -> list[Repetition]:
        wanted = [
            cell
            for setting in settings
            for n_u in self.sizes(setting)
            for zeta in self.zetas
            for with_unlabeled in (False, True)
            for cell in self._group(setting, n_u, zeta, with_unlabeled)
        ]
        return list(dict.fromkeys(wanted))  # two ζ can round to the same number of labels

    def gains(self, setting: Setting, risks: Mapping[Repetition, float]) -> dict[int, Floats]:
        """For every n_u, and every ζ, mean risk from labels alone over mean risk with unlabeled points."""

        def mean(n_u: int, zeta: float, with_unlabeled: bool) -> float:
            return float(np.mean([risks[cell] for cell in self._group(setting, n_u, zeta, with_unlabeled)]))

        return {
            n_u: np.array([mean(n_u, zeta, False) / max(mean(n_u, zeta, True), 1e-12) for zeta in self.zetas])
            for n_u in self.sizes(setting)
        }


def crossing(zetas: Sequence[float], gains: Floats) -> float | None:
    """The ζ at which the gain falls to 1, between the last ζ above it and the next; None if it never does."""
    above = np.flatnonzero(gains > 1)
    if not len(above) or above[-1] + 1 == len(gains):
        return None
    left = above[-1]
    high, low = np.log(gains[left]), np.log(gains[left + 1])
    return float(zetas[left] + (zetas[left + 1] - zetas[left]) * high / (high - low))


def table(sweep: CriticalSweep, gains: Mapping[Setting, Mapping[int, Floats]]) -> str:
    """The predicted critical ζ and the observed crossings, as text."""
    lines = [f"{'setting':<12} {'n_u':>8} {'predicted ζ':>12} {'observed ζ':>11}"]
    for setting, by_size in gains.items():
        name = setting.name if "=" not in setting.name else "(yours)"
        for n_u, gain in by_size.items():
            observed = crossing(sweep.zetas, gain)
            shown = "none" if observed is None else f"{observed:.2f}"
            lines.append(f"{name:<12} {n_u:>8} {setting.exponents.critical_zeta:>12.3f} {shown:>11}")
    return "\n".join(lines)

"""The paper's illustration as numbers: labels, confident points, where they are carried, and what is learned."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from semifl.randomness import Seed
from semifl.theory.kernel import BoxKernel, Floats, Ints
from semifl.theory.problem import Problem
from semifl.theory.risk import excess_risk
from semifl.theory.ssl import Initial, confident, pseudo_label

GRID = 160
ARROWS = 40


@dataclass(frozen=True, eq=False)
class Scene:
    """Everything the picture shows."""

    labeled: tuple[Floats, Ints]
    chosen: Floats
    pseudo: Ints
    carried: Floats
    shown: Ints  # which of the chosen get an arrow
    before: float
    after: float
    before_classes: Ints  # (GRID, GRID), row by row from x₂ = 0
    after_classes: Ints
    core: tuple[float, float]


def scene(seed: int = 0, labels: int = 24, unlabeled: int = 4000, delta: float = 0.12, h: float = 0.09) -> Scene:
    """Steps 1–3 in the plane, with q = 1, so that the probability of class 1 is x₁ itself."""
    problem = Problem(alpha=1, q=1, d=2, s=1, v=0.5, tilt=0.0)
    address = Seed(seed).under("theory", "demo")
    x, y = problem.labeled(labels, address.numpy_at("labeled"))
    points = problem.unlabeled(unlabeled, address.numpy_at("unlabeled"))
    initial = Initial(problem, n0=10_000)
    chosen = points[confident(initial, points, delta)]
    pseudo = pseudo_label(initial, chosen)
    carried = problem.augment(chosen, address.numpy_at("augment"))
    alone = BoxKernel(x, y, h)
    both = BoxKernel(np.concatenate([x, carried]), np.concatenate([y, pseudo]), h)
    moved = np.flatnonzero((carried != chosen).any(axis=1))
    return Scene(
        labeled=(x, y),
        chosen=chosen,
        pseudo=pseudo,
        carried=carried,
        shown=moved[:ARROWS],
        before=excess_risk(problem, alone),
        after=excess_risk(problem, both),
        before_classes=_classes(alone),
        after_classes=_classes(both),
        core=(problem.c, 1 - problem.c),
    )


def _classes(model: BoxKernel) -> Ints:
    middle = (np.arange(GRID) + 0.5) / GRID
    x2, x1 = np.meshgrid(middle, middle, indexing="ij")
    return model.classify(np.column_stack([x1.ravel(), x2.ravel()])).reshape(GRID, GRID)

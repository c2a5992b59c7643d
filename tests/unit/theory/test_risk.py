"""The exact excess risk against plain sampling of test points."""

import numpy as np
import pytest

from semifl.theory.kernel import BoxKernel
from semifl.theory.problem import Problem
from semifl.theory.risk import excess_risk, lattice


def test_always_zero_costs_the_positive_side() -> None:
    problem = Problem(alpha=1, tilt=0.5, c=0.25)
    nobody = BoxKernel(np.empty((0, 1)), np.empty(0, dtype=int), 0.1)
    # P(side +) · E|2m − 1| = 0.75 · 2 · 0.25 · 1/2.
    assert excess_risk(problem, nobody) == pytest.approx(0.1875)


@pytest.mark.parametrize(("d", "q"), [(1, 1.0), (1, 0.5), (2, 1.0), (3, 0.7)])
def test_agrees_with_sampled_test_points(d: int, q: float) -> None:
    problem = Problem(alpha=1, q=q, d=d)
    rng = np.random.default_rng(d)
    model = BoxKernel(*problem.labeled(120, rng), 0.15)
    x = problem.covariates(40_000, rng)
    cost = np.abs(2 * problem.m(x) - 1) * (model.classify(x) != problem.bayes(x))
    allowed = 4 * cost.std() / np.sqrt(len(x)) + (0 if d == 1 else 0.006)  # lines are finitely many
    assert abs(excess_risk(problem, model, 256) - cost.mean()) < allowed


def test_the_lines_are_evenly_spread() -> None:
    assert lattice(0, 1).shape == (1, 0)
    for dimension in (1, 2):
        points = lattice(dimension, 64)
        assert points.shape == (64, dimension)
        for column in points.T:
            assert np.histogram(column, 8, (0, 1))[0].tolist() == pytest.approx([8] * 8, abs=2)

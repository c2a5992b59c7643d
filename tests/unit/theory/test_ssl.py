"""Steps 1–3 and the rates of their constants."""

import numpy as np
import pytest

from semifl.theory.problem import Problem
from semifl.theory.ssl import Initial, Schedule, confident, pseudo_label, semi_supervised
from semifl.theory.theorem import Exponents


def test_a6_the_error_is_within_its_bound_and_reaches_it() -> None:
    problem = Problem(q=0.5)
    initial = Initial(problem, n0=400, r=0.5, c8=0.4)
    x = np.linspace(0, 1, 20_001)[:, None]
    error = np.abs(initial(x) - problem.m(x))
    assert initial.error == pytest.approx(0.02)
    assert 0.0199 < error.max() <= 0.02 + 1e-12
    np.testing.assert_allclose(initial(x)[20_000:10_000:-1], 1 - initial(x)[:10_000], atol=1e-12)  # side-blind


def test_step_one_takes_both_ends() -> None:
    x = np.array([[0.02], [0.2], [0.5], [0.96]])
    assert confident(lambda points: points[:, 0], x, 0.05).tolist() == [True, False, False, True]
    assert pseudo_label(lambda points: points[:, 0], x).tolist() == [0, 0, 1, 1]


def test_step_three_joins_labels_and_carried_points() -> None:
    problem = Problem(s=1, v=0)
    rng = np.random.default_rng(0)
    labeled = problem.labeled(10, rng)
    unlabeled = np.array([[0.01], [0.99], [0.5]])
    model = semi_supervised(labeled, unlabeled, problem.m, lambda x, _: x + np.array([[0.3], [-0.3]]), 0.05, 0.2, rng)
    np.testing.assert_allclose(model.points[10:, 0], [0.31, 0.69])
    assert model.labels[10:].tolist() == [0, 1]
    np.testing.assert_array_equal(model.points[:10], labeled[0])
    np.testing.assert_array_equal(model.labels[:10], labeled[1])


def test_pseudo_labels_are_as_wrong_as_the_proof_allows() -> None:
    """E|Ŷ − Ỹ| is E[u | u ≤ δ] = δ s/(s + 1) with a perfect m̂₀, within the proof's 2δ."""
    problem = Problem(s=1, v=0, easy=1)
    rng = np.random.default_rng(1)
    x = problem.unlabeled(400_000, rng)
    x = x[confident(problem.m, x, 0.1)]
    wrong = (pseudo_label(problem.m, x) != problem.label(x, rng)).mean()
    assert wrong == pytest.approx(0.05, abs=4 * np.sqrt(0.05 / len(x)))


def test_the_rates_of_delta_and_h() -> None:
    schedule = Schedule(Exponents(1, 0.5, 1, 0.5, 0.5), delta_scale=0.5, h_scale=2)  # q(α+3+ρ) + d = 3.5
    assert schedule.h(10**7) == pytest.approx(2 * 10**-2)
    assert schedule.delta(10**7) == pytest.approx(0.5 * 10**-1)
    assert schedule.supervised_h(10**6) == pytest.approx(2 * 10**-2)  # q(α+3) + d = 3

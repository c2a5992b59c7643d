"""Every constant of (A1)–(A5), and the label law, against samples."""

import numpy as np
import pytest

from semifl.errors import UserError
from semifl.theory.problem import Problem

PROBLEMS = [
    Problem(alpha=1, q=1, d=1, s=0.5, v=0),
    Problem(alpha=2, q=0.5, d=2, s=1, v=0.5, tilt=-0.6, c=0.2),
    Problem(alpha=0.5, q=0.8, d=1, s=2, v=1, tilt=0.9, easy=0.5),
]
N = 200_000


def near(share: float, n: int) -> float:
    """Four standard errors of a share."""
    return 4 * np.sqrt(share * (1 - share) / n) + 1e-9


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a1_tail_of_the_unlabeled_law(problem: Problem) -> None:
    x = problem.unlabeled(N, np.random.default_rng(0))
    m = problem.m(x)
    for delta in (0.05, 0.1, problem.c):
        expected = problem.easy * (delta / problem.c) ** problem.s
        assert problem.c1 * delta**problem.s == pytest.approx(expected)
        assert abs((np.minimum(m, 1 - m) <= delta).mean() - expected) < near(expected, N)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a3_coverage_of_the_augmentation(problem: Problem) -> None:
    rng = np.random.default_rng(1)
    x = problem.unlabeled(N, rng)
    for delta in (0.1, 0.2):
        carried = problem.augment(x[problem.level(x) <= delta], rng)
        for low, high in ((0.5, 0.52), (0.45, 0.5), (0.4, 0.6)):
            ball = problem.covariates(N, rng)[:, 0]
            share = ((ball >= low) & (ball <= high)).mean()
            expected = problem.s / (problem.s + problem.v) * delta**problem.v * share
            assert problem.c2() * delta**problem.v * share == pytest.approx(expected)
            seen = ((carried[:, 0] >= low) & (carried[:, 0] <= high)).mean()
            assert abs(seen - expected) < near(expected, len(carried)) + near(share, N)


def test_a3_with_an_initial_estimate_that_errs() -> None:
    problem = PROBLEMS[2]
    # s/(s + v) · (1 − 1/4)^(s + v) / (1 + 1/4)^s by hand: 2/3 · 0.421875 / 1.5625.
    assert problem.c2(0.25) == pytest.approx(0.18)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a4_margin(problem: Problem) -> None:
    x = problem.covariates(N, np.random.default_rng(2))
    margin = np.abs(problem.m(x) - 0.5)
    assert x.shape == (N, problem.d)
    assert x.min() >= 0
    assert x.max() <= 1
    for t in (0.02, 0.1, 0.2):
        expected = (t / (0.5 - problem.c)) ** problem.alpha
        assert problem.c6 * t**problem.alpha == pytest.approx(expected)
        assert abs((margin <= t).mean() - expected) < near(expected, N)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a5_smoothness_is_met_and_attained(problem: Problem) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.random((N, problem.d)), rng.random((N, problem.d))
    ratio = np.abs(problem.m(a) - problem.m(b)) / np.linalg.norm(a - b, axis=1) ** problem.q
    assert ratio.max() <= problem.c7 + 1e-9
    mirrored = a.copy()
    mirrored[:, 0] = 1 - a[:, 0]
    gap = np.abs(problem.m(a) - problem.m(mirrored)) / np.linalg.norm(a - mirrored, axis=1) ** problem.q
    np.testing.assert_allclose(gap, problem.c7, atol=1e-6)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_label_law_after_selection(problem: Problem) -> None:
    """E[Ỹ | X̃, selected] = m(X̃), with Ỹ drawn by the source as (A2) says."""
    rng = np.random.default_rng(4)
    x = problem.unlabeled(4 * N, rng)
    x = x[problem.level(x) <= 0.15]
    labels = problem.label(x, rng)
    carried = problem.augment(x, rng)
    target = problem.m(carried)
    inside = np.abs(target - 0.5) <= problem.widest
    bins = np.digitize(target[inside], np.linspace(problem.c, 1 - problem.c, 9))
    for each in np.unique(bins):
        here = bins == each
        seen, expected = labels[inside][here].mean(), target[inside][here].mean()
        assert abs(seen - expected) < 4 * np.sqrt(0.25 / here.sum())
    if not inside.all():  # with v = 0 nobody stays
        assert abs(labels[~inside].mean() - target[~inside].mean()) < 4 * np.sqrt(0.25 / (~inside).sum())


@pytest.mark.parametrize("problem", PROBLEMS)
def test_excess_mass_is_the_mean_of_twice_the_margin(problem: Problem) -> None:
    x = problem.covariates(N, np.random.default_rng(5))
    weight = np.abs(2 * problem.m(x) - 1)
    for low, high in ((0.0, 0.5), (0.45, 0.55), (0.5, 1.0), (0.3, 0.49)):
        seen = np.where((x[:, 0] > low) & (x[:, 0] <= high), weight, 0)
        below = problem.excess_below(np.array([low, high]))
        assert abs(seen.mean() - (below[1] - below[0])) < 4 * seen.std() / np.sqrt(N) + 1e-9


def test_the_bayes_rule_is_right_of_the_middle() -> None:
    problem = Problem(q=0.5)
    x = np.array([[0.1], [0.49], [0.5], [0.9]])
    np.testing.assert_array_equal(problem.bayes(x), [0, 0, 1, 1])
    np.testing.assert_array_equal(problem.bayes(x), problem.m(x) >= 0.5)


@pytest.mark.parametrize("wrong", [{"alpha": 0}, {"q": 1.5}, {"s": 0}, {"v": -1}, {"c": 0.5}, {"tilt": 1}, {"d": 0}])
def test_numbers_outside_the_family_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(UserError, match=f"problem: {next(iter(wrong))} must"):
        Problem(**wrong)

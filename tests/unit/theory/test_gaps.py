"""What the published proof leaves open, shown by numbers."""

import numpy as np
import pytest

from semifl.theory.gaps import (
    ONE_SIDED,
    SETTING,
    Misleading,
    Shifted,
    emptiness,
    label_law,
    learned_start,
    shifted_slope,
)
from semifl.theory.ssl import confident
from semifl.theory.theorem import violations


def test_the_misleading_augmentation_keeps_the_label_law_before_selection_only() -> None:
    problem, misleading = SETTING.problem, Misleading(SETTING.problem)
    # (0.1/0.25)² = 0.16 of the carried points are below the turn: 0.16/0.84 for each one above.
    assert misleading.makeup == pytest.approx(0.16 / 0.84)
    assert misleading.reach == pytest.approx(0.25 / (1 + 0.32 / 0.84))
    rng = np.random.default_rng(0)
    x = problem.unlabeled(1_500_000, rng)
    labels, carried = problem.label(x, rng), misleading(x, rng)
    m = problem.m(carried)
    moved = carried[:, 0] != x[:, 0]
    right = moved & (m > 0.55) & (m < 0.5 + misleading.reach)
    selected = right & (problem.level(x) <= 0.1)
    assert labels[right].mean() == pytest.approx(m[right].mean(), abs=4 * 0.5 / np.sqrt(right.sum()))
    assert labels[selected].mean() == pytest.approx(1 - m[selected].mean(), abs=4 * 0.5 / np.sqrt(selected.sum()))


def test_it_carries_as_much_everywhere() -> None:
    problem, rng = SETTING.problem, np.random.default_rng(1)
    x = problem.unlabeled(400_000, rng)
    x = x[problem.level(x) <= 0.08]
    carried = Misleading(problem)(x, rng)
    share = (np.abs(carried[:, 0] - 0.6) < 0.05).mean()
    expected = problem.c2() * 0.08 * 0.2  # q = α = 1 without tilt: P_l is uniform on [1/4, 3/4]
    assert share == pytest.approx(expected, abs=4 * np.sqrt(expected / len(x)))


def test_the_theorem_fails_without_the_label_law() -> None:
    honest, misleading = label_law(2**14, repetitions=4)
    assert honest < 0.02
    assert misleading > 0.05


def test_the_empty_ball_needs_the_law_of_carried_points() -> None:
    seen = emptiness(repetitions=400)
    assert seen.corrected == pytest.approx(np.exp(-200 * 0.5 * 0.1 * 0.05))
    assert seen.published == pytest.approx(np.exp(-200 * 0.8 * 0.05))
    assert seen.measured == pytest.approx(seen.corrected, abs=4 * 0.5 / np.sqrt(400))
    assert seen.measured > 100 * seen.published


def test_an_initial_estimate_without_labels_where_it_is_needed_is_confident_of_class_zero() -> None:
    elsewhere, there, blind = learned_start(2**14, repetitions=4)
    # Every pseudo-label is 0, so the whole positive side is lost: 1/2 · 2 · 0.25 · 1/2 = 0.125.
    assert elsewhere == pytest.approx(0.125, abs=0.005)
    assert blind < 0.02 < there


def test_an_error_that_tells_sides_apart_spoils_the_rate_within_all_assumptions() -> None:
    assert violations(ONE_SIDED.exponents, r=0.5, init_power=0.4, delta=ONE_SIDED.schedule.delta(2**12)) == []
    x = np.linspace(0, 1, 1001)[:, None]
    problem = ONE_SIDED.problem
    assert np.abs(Shifted(problem, 0.02)(x) - problem.m(x)).max() <= 0.02 + 1e-12
    _, _, high = shifted_slope(0.4, repetitions=6)
    assert high < ONE_SIDED.exponents.semi == pytest.approx(1 / 3)


def test_after_selection_a_shift_moves_the_labels_by_the_ratio_of_error_to_delta() -> None:
    problem, rng = ONE_SIDED.problem, np.random.default_rng(3)
    delta, error = 0.1, 0.02
    x = problem.unlabeled(600_000, rng)
    x = x[confident(Shifted(problem, error), x, delta)]
    carried, labels = problem.augment(x, rng), problem.label(x, rng)
    middle = np.abs(problem.m(carried) - 0.5) < 0.02
    # s + v = 1: sides are selected as (δ + ε) : (δ − ε), and a pseudo-label's posterior at m = 1/2 follows.
    expected = (delta + error) / (2 * delta)
    pseudo = (x[:, 0] > 0.5)[middle].mean()
    assert pseudo == pytest.approx(expected, abs=0.02)
    assert labels[middle].mean() > 0.55  # and m(X̃) is 1/2

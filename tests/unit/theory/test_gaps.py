"""What the published proof leaves open, shown by numbers."""

import numpy as np
import pytest

from semifl.theory.gaps import SETTING, Misleading, emptiness, label_law


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

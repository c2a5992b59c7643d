"""Slopes: the fit on a law that is known, and four settings measured small."""

from pathlib import Path

import numpy as np
import pytest

from semifl.theory.cells import finish
from semifl.theory.rates import Plan, Slope, fit, labels_for, slopes, table
from semifl.theory.settings import SETTINGS


def test_a_power_law_is_found_again() -> None:
    sizes = [2**power for power in range(8, 15)]
    rng = np.random.default_rng(0)
    risks = 3 * np.array(sizes, dtype=float)[:, None] ** -0.4 * rng.exponential(size=(len(sizes), 200))
    fitted, low, high = fit(sizes, risks, np.random.default_rng(1))
    assert low < 0.4 < high
    assert low < fitted < high
    assert 0.02 < high - low < 0.2
    exact = np.repeat(np.array(sizes, dtype=float)[:, None] ** -0.4, 3, axis=1)
    assert fit(sizes, exact, rng) == pytest.approx((0.4, 0.4, 0.4))


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    sizes = [2**power for power in range(8, 13)]
    rng = np.random.default_rng(2)
    hits = 0
    for _ in range(60):
        risks = np.array(sizes, dtype=float)[:, None] ** -0.3 * rng.gamma(2, size=(len(sizes), 40))
        _, low, high = fit(sizes, risks, rng)
        hits += low <= 0.3 <= high
    assert hits >= 50  # 57 expected


def test_the_number_of_labels() -> None:
    assert labels_for(10_000, 0.5) == 100
    assert labels_for(10_000, 0.0) == 1


def test_only_a_flatter_interval_contradicts_the_bound() -> None:
    setting = SETTINGS["rough"]

    def slope(low: float, high: float) -> Slope:
        return Slope(setting, "supervised", 0.3, (low + high) / 2, low, high, (1, 2), np.ones((2, 2)))

    assert slope(0.25, 0.31).confirmed
    assert slope(0.5, 0.6).confirmed
    assert not slope(0.1, 0.29).confirmed
    assert "FLATTER" in table([slope(0.1, 0.29)])


def test_four_settings_fall_at_least_as_fast_as_predicted(tmp_path: Path) -> None:
    settings = [SETTINGS[name] for name in ("adequate", "separated", "rough", "scarce")]
    plan = Plan(repetitions=16, quick=True)
    found = slopes(settings, plan, finish(plan.cells(settings), tmp_path / "cells.jsonl", 1))
    assert len(found) == 8
    for slope in found:
        assert slope.confirmed, slope
        assert slope.fitted > 0.1  # it falls at all

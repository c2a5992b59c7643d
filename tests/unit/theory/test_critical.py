"""The sweep over ζ, and the point where the gain is gone."""

from pathlib import Path

import numpy as np
import pytest

from semifl.theory.cells import finish
from semifl.theory.critical import CriticalSweep, crossing, table
from semifl.theory.settings import SETTINGS


def test_the_crossing_is_read_off_between_two_points() -> None:
    zetas = [0.4, 0.6, 0.8, 1.0]
    assert crossing(zetas, np.array([8.0, 4.0, 0.25, 0.1])) == pytest.approx(0.7)
    assert crossing(zetas, np.array([8.0, 4.0, 2.0, 1.5])) is None
    assert crossing(zetas, np.array([0.8, 0.4, 0.2, 0.1])) is None


def test_unlabeled_points_help_most_when_labels_are_few(tmp_path: Path) -> None:
    setting = SETTINGS["adequate"]
    sweep = CriticalSweep(repetitions=8, quick=True)
    risks = finish(sweep.cells([setting]), tmp_path / "cells.jsonl", 1)
    gains = sweep.gains(setting, risks)
    assert set(gains) == set(sweep.sizes(setting))
    assert all(gain[0] > 2 > gain[-1] for gain in gains.values())
    assert f"{5 / 5.5:.3f}" in table(sweep, {setting: gains})

"""Differences over seeds, by hand."""

import json
import math
from pathlib import Path

import pytest

from semifl.report.comparison import Mean, difference_text, mean_of, mean_text, mixed_code, paired


def test_a_paired_difference_and_its_interval_by_hand() -> None:
    # Differences 1, 2, 6: mean 3, standard deviation √((4 + 1 + 9) / 2) = √7; t(0.975, 2) = 4.302653.
    half = 4.302653 * math.sqrt(7) / math.sqrt(3)
    found = paired({0: 11.0, 1: 22.0, 2: 36.0, 9: 5.0}, {0: 10.0, 1: 20.0, 2: 30.0, 8: 1.0})
    assert found is not None
    assert (found.mean, found.seeds) == (3.0, 3)
    assert (found.low, found.high) == pytest.approx((3 - half, 3 + half), abs=1e-4)
    assert not found.is_clear
    assert difference_text(found) == f"+3.0 [{3 - half:+.1f}, {3 + half:+.1f}]"


def test_a_difference_is_clear_when_its_interval_leaves_out_zero() -> None:
    close = paired({0: 10.0, 1: 10.1, 2: 9.9}, {0: 5.0, 1: 5.0, 2: 5.0})
    assert close is not None
    assert close.is_clear


def test_one_seed_has_no_interval_and_none_no_difference() -> None:
    one = paired({0: 3.0}, {0: 1.0})
    assert one is not None
    assert not one.is_clear
    assert difference_text(one) == "+2.0 (one seed)"
    assert paired({0: 3.0}, {1: 1.0}) is None
    assert difference_text(None) == ""


def test_a_mean_over_seeds_by_hand() -> None:
    assert mean_of({}) is None
    assert mean_text(mean_of({})) == ""
    assert mean_of({4: 90.0}) == Mean(90.0, None, None, None, 1)
    assert mean_text(mean_of({4: 90.0})) == "90.0 (n = 1)"
    # 88 and 92: of the sample √((4 + 4) / 1) = 2.83, of the population √((4 + 4) / 2) = 2; t(0.975, 1) = 12.7062.
    half = 12.7062 * math.sqrt(8) / math.sqrt(2)
    found, papers = mean_of({0: 88.0, 1: 92.0}), mean_of({0: 88.0, 1: 92.0}, population=True)
    assert found is not None
    assert papers is not None
    assert (found.deviation, papers.deviation) == pytest.approx((math.sqrt(8), 2.0))
    assert (found.low, found.high) == pytest.approx((90 - half, 90 + half), abs=1e-3)
    assert (papers.low, papers.high) == (found.low, found.high)
    assert mean_text(found) == f"90.0 (2.8, n = 2, {90 - half:.1f} to {90 + half:.1f})"


def made_with(path: Path, semifl: str, own: str = "", resumed: str = "") -> Path:
    """A run directory that says which code made it."""
    path.mkdir()
    files = {"mine:Method": {"digest": own}} if own else {}
    (path / "environment.json").write_text(json.dumps({"digest": semifl, "own_code": files}))
    if resumed:
        event = {"event": "resumed", "environment": {"digest": resumed, "own_code": files}}
        (path / "events.jsonl").write_text(json.dumps(event) + "\n")
    return path


def test_runs_of_one_cell_made_with_different_code_are_told_in_one_sentence(tmp_path: Path) -> None:
    a, same = made_with(tmp_path / "a-seed-0", "s1", "m1"), made_with(tmp_path / "a-seed-1", "s1", "m1")
    changed = made_with(tmp_path / "a-seed-2", "s1", "m2")
    other = made_with(tmp_path / "b-seed-0", "s2")
    assert mixed_code({"a": [a, same], "b": [other]}) == ""  # cells may differ from each other
    sentence = mixed_code({"a": [a, same, changed], "b": [other]})
    assert sentence.startswith(
        "the runs of 'a' were made with different code of mine:Method (a-seed-0, a-seed-1 | a-seed-2): "
    )
    twice = made_with(tmp_path / "c-seed-0", "s1", resumed="s2")  # one run of two versions
    assert "different code of semifl (c-seed-0, resumed with other code)" in mixed_code({"c": [twice]})
    assert ", and so in 1 more: " in mixed_code({"a": [a, changed], "c": [twice]})

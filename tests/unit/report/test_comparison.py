"""Differences over seeds, by hand."""

import math

import pytest

from semifl.report.comparison import difference_text, paired, summary
from semifl.report.markdown import markdown_table


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


def test_a_summary_has_the_papers_standard_deviation() -> None:
    assert summary({}) == ""
    assert summary({4: 90.0}) == "90.0 (n = 1)"
    assert summary({0: 88.0, 1: 92.0}) == "90.0 (2.0, n = 2)"  # of the population: √(((−2)² + 2²) / 2)


def test_markdown_lines_up() -> None:
    text = markdown_table(["", "IID"], [["Π-Model", "1"], ["x", "22.0"]])
    lines = text.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1] == "|---------|------|"

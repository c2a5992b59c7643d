"""What the page of CIFAR-10 says of differences: intervals and verdicts, by hand."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parents[1] / "results/cifar10"


@pytest.fixture
def orderings(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(HERE))
    return import_module("orderings")


def test_interval_of_one_seed_is_that_of_other_test_pictures(orderings: ModuleType) -> None:
    difference, half, seeds = orderings.interval({0: 80.0, 5: 1.0}, {0: 70.0})
    # Variances in points²: 80 · 20 / 10,000 = 0.16 and 70 · 30 / 10,000 = 0.21; 1.96 · √0.37
    assert (difference, seeds) == (10.0, 1)
    assert half == pytest.approx(1.1922, abs=1e-4)


def test_interval_of_two_seeds_is_the_wider_of_pictures_and_seeds(orderings: ModuleType) -> None:
    difference, half, seeds = orderings.interval({0: 80.0, 1: 80.0}, {0: 70.0, 1: 68.0})
    # Differences 10 and 12: deviation √2, over √2, times Student's 12.7062 with one degree of freedom
    assert (difference, seeds) == (11.0, 2)
    assert half == pytest.approx(12.7062, abs=1e-4)
    _, half, _ = orderings.interval({0: 80.0, 1: 80.0}, {0: 70.0, 1: 70.0})
    assert half == pytest.approx(1.1922 / 2**0.5, abs=1e-4)  # alike seeds: half the variance of the pictures


@pytest.mark.parametrize(
    ("difference", "theirs", "said"),
    [(2.0, 5.0, "agrees"), (-2.0, -5.0, "agrees"), (2.0, -5.0, "**disagrees**"), (0.5, 5.0, "too small to tell")],
)
def test_verdict_is_about_the_sign_outside_the_interval(
    orderings: ModuleType, difference: float, theirs: float, said: str
) -> None:
    assert orderings.verdict(difference, 1.0, theirs) == said


def test_pages_are_what_their_scripts_print(orderings: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    for name, page in (("orderings", "orderings.md"), ("table", "README.md")):
        import_module(name).main()
        assert capsys.readouterr().out in (HERE / page).read_text(encoding="utf-8"), f"run {name}.py again"

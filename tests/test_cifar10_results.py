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


def test_interval_of_one_seed_is_that_of_other_pictures_where_seeds_agree(orderings: ModuleType) -> None:
    difference, half, seeds = orderings.interval({0: 80.0, 5: 1.0}, {0: 70.0}, orderings.Spread(0.0, 3))
    # Variances in points²: 80 · 20 / 10,000 = 0.16 and 70 · 30 / 10,000 = 0.21; 1.96 · √0.37
    assert (difference, seeds) == (10.0, 1)
    assert half == pytest.approx(1.1922, abs=1e-4)


def test_interval_of_two_seeds_has_both_parts(orderings: ModuleType) -> None:
    difference, half, seeds = orderings.interval(
        {0: 80.0, 1: 80.0}, {0: 70.0, 1: 70.0}, orderings.Spread(deviation=0.5, freedom=3)
    )
    assert (difference, seeds) == (10.0, 2)
    # Pictures: as above, for both seeds have the same. Seeds: Student's 3.1824 with three degrees of freedom, times
    # 0.5 · √(2 / 2).
    assert half == pytest.approx((1.1922**2 + 1.5912**2) ** 0.5, abs=1e-4)


def test_deviation_of_seeds_is_pooled_over_the_cells_of_a_label_count(orderings: ModuleType) -> None:
    found = {
        "cifar10-250-iid": {0: 60.0, 1: 62.0},  # squares about the mean: 1 + 1
        "cifar10-250-k2": {0: 40.0, 1: 43.0, 2: 46.0},  # 9 + 0 + 9
        "cifar10-250-fixmatch": {0: 10.0},  # one seed says nothing
        "cifar10-4000-iid": {0: 0.0, 1: 100.0},  # another label count
        "cifar10-250-iid-ninety-minutes": {0: 0.0, 1: 100.0},  # another recipe
    }
    assert orderings.spread(found, 250) == (pytest.approx((20 / 3) ** 0.5), 3)


@pytest.mark.parametrize(
    ("difference", "theirs", "sign", "size"),
    [
        (2.0, 5.0, "agrees", "smaller"),
        (-2.0, -5.0, "agrees", "smaller"),
        (-6.0, -5.5, "agrees", "as large"),
        (-9.0, -5.0, "agrees", "larger"),
        (2.0, -5.0, "**disagrees**", "smaller"),
        (0.5, 5.0, "too small to tell", "smaller"),
        (0.5, 1.2, "too small to tell", "as large"),
        (-0.5, 5.0, "too small to tell", "smaller"),
    ],
)
def test_sign_and_size_are_said_apart_by_an_interval_of_one_point_to_each_side(
    orderings: ModuleType, difference: float, theirs: float, sign: str, size: str
) -> None:
    assert orderings.sign(difference, 1.0, theirs) == sign
    assert orderings.size(difference, 1.0, theirs) == size


def test_pages_are_what_their_scripts_print(orderings: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    for name, page in (("orderings", "orderings.md"), ("table", "README.md")):
        import_module(name).main()
        assert capsys.readouterr().out in (HERE / page).read_text(encoding="utf-8"), f"run {name}.py again"

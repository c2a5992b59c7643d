"""The theorem's numbers, by hand."""

import pytest

from semifl.theory.theorem import Exponents, violations

# (α, q, d, s, v), then semi-supervised exponent, supervised exponent, critical ζ, each as a fraction.
BY_HAND = [
    ((1, 1, 1, 0.5, 0), 2 / 5.5, 2 / 5, 5 / 5.5),
    ((2, 1, 1, 0.5, 0.5), 3 / 7, 3 / 6, 6 / 7),
    ((1, 0.5, 1, 0.5, 0.5), 1 / 3.5, 1 / 3, 3 / 3.5),
    ((1, 1, 2, 1, 1), 2 / 8, 2 / 6, 6 / 8),
    ((3, 0.25, 4, 2, 0), 1 / 6, 1 / 5.5, 5.5 / 6),
]


@pytest.mark.parametrize(("numbers", "semi", "supervised", "critical"), BY_HAND)
def test_exponents_by_hand(numbers: tuple[float, ...], semi: float, supervised: float, critical: float) -> None:
    exponents = Exponents(*numbers)
    assert exponents.semi == pytest.approx(semi)
    assert exponents.supervised == pytest.approx(supervised)
    assert exponents.critical_zeta == pytest.approx(critical)


def test_the_critical_zeta_equals_both_bounds() -> None:
    exponents = Exponents(1.3, 0.7, 3, 0.4, 1.1)
    assert exponents.critical_zeta * exponents.supervised == pytest.approx(exponents.semi)


def test_perfect_transmission_is_as_good_as_labels() -> None:
    exponents = Exponents(2, 1, 3, 1e-12, 0)
    assert exponents.semi == pytest.approx(exponents.supervised)
    assert exponents.critical_zeta == pytest.approx(1)


def test_a_choice_within_the_theorem_breaks_nothing() -> None:
    assert violations(Exponents(1, 1, 1, 0.5, 0.5), r=0.5, init_power=0.8, delta=0.2) == []


def test_the_first_part_of_a7() -> None:
    # qs < q(α + 3 + v) + d is the same condition: with α = v = 0.1, q = d = 1 it fails from s = 4.2 on.
    assert violations(Exponents(0.1, 1, 1, 4.1, 0.1), 0.5, 0.8) == []
    (sentence,) = violations(Exponents(0.1, 1, 1, 4.3, 0.1), 0.5, 0.8)
    assert sentence.startswith("(A7), first part")


def test_the_second_part_of_a7() -> None:
    # q/(q(α+3+v+s)+d) = 1/6: n_0 = n_u^χ with r = 1/2 needs χ > 1/3.
    exponents = Exponents(1, 1, 1, 0.5, 0.5)
    assert violations(exponents, 0.5, 0.34) == []
    (sentence,) = violations(exponents, 0.5, 0.33)
    assert sentence.startswith("(A7), second part")


@pytest.mark.parametrize(
    ("numbers", "named"),
    [((1, 1, 1, 0, 0.5), "(A1)"), ((1, 1, 1, 1, -0.1), "(A3)"), ((0, 1, 1, 1, 0), "(A4)"), ((1, 2, 1, 1, 0), "(A5)")],
)
def test_the_broken_assumption_is_named(numbers: tuple[float, ...], named: str) -> None:
    (sentence,) = violations(Exponents(*numbers), 0.5, 0.9)
    assert named in sentence


def test_rate_thresholds_and_confidence_are_checked_too() -> None:
    exponents = Exponents(1, 1, 1, 0.5, 0.5)
    assert [each[:4] for each in violations(exponents, 0, 0.8)] == ["(A6)", "(A7)"]
    assert any("(A2)" in each for each in violations(exponents, 0.5, 0.8, c3=0.7))
    assert any("1/4" in each for each in violations(exponents, 0.5, 0.8, delta=0.3))

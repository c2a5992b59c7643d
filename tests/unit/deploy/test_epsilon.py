"""ε, against the formula reckoned with sixty digits, and against Google's accountant."""

import math

import mpmath
import pytest

from semifl.deploy.privacy import epsilon_of


def exact_delta(noise: float, updates: int, epsilon: float) -> mpmath.mpf:
    """Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ), with enough digits for any ε here."""
    with mpmath.workdps(60):
        mu, epsilon = mpmath.sqrt(updates) / mpmath.mpf(noise), mpmath.mpf(epsilon)
        return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize(
    ("noise", "updates", "delta"),
    [
        *((1.0, 1, 1e-5), (1.0, 50, 1e-5), (1.0, 100, 1e-5), (0.3, 2, 1e-5), (0.1, 10_000, 1e-5)),
        *((16.0, 100, 1e-5), (50.0, 1, 1e-12), (8.0, 1, 1e-20), (1e5, 1, 1e-7), (1e3, 3, 1e-9)),
    ],
)
def test_epsilon_is_never_understated_and_never_much_overstated(noise: float, updates: int, delta: float) -> None:
    epsilon = epsilon_of({noise: updates}, delta)
    assert exact_delta(noise, updates, epsilon) <= delta
    assert exact_delta(noise, updates, epsilon * (1 - 1e-6)) > delta


def test_noise_that_hides_everything_costs_nothing() -> None:
    assert epsilon_of({}, 1e-5) == 0.0
    # Without any ε, δ is 2 Φ(μ/2) − 1, about 0.4 μ: below 1e-5 for μ = 1e-6.
    assert epsilon_of({1e6: 1}, 1e-5) == 0.0


def test_updates_with_other_noise_add_up_by_their_squares() -> None:
    # 1/2² + 3/6² = 12/36 = 3/3²
    assert epsilon_of({2.0: 1, 6.0: 3}, 1e-5) == pytest.approx(epsilon_of({3.0: 3}, 1e-5), rel=1e-8)


@pytest.mark.parametrize(("noise", "updates"), [(1.0, 1), (1.0, 10), (8.0, 100)])
def test_the_accountant_says_the_same(noise: float, updates: int) -> None:
    accounting = pytest.importorskip("dp_accounting")
    accountant = accounting.pld.PLDAccountant()
    accountant.compose(accounting.GaussianDpEvent(noise / math.sqrt(updates)))
    assert epsilon_of({noise: updates}, 1e-5) == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)

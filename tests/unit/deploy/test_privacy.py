import math

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.stats import kstest, norm

from semifl.deploy.policy import Privacy
from semifl.deploy.privacy import Ledger, epsilon_of, protect, secret_normal
from semifl.errors import UserError


def exact_epsilon(noise, times, delta):
    """Of `times` Gaussian mechanisms: together they are one whose noise is smaller by √times (Balle & Wang 2018)."""
    mu = math.sqrt(times) / noise

    def excess(epsilon):
        return norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu) - delta

    return brentq(excess, 0, 5 * mu**2 + 50)


@pytest.mark.parametrize(("noise", "times"), [(1.0, 1), (2.0, 1), (2.0, 40), (5.0, 10), (50.0, 5000)])
def test_the_accountant_agrees_with_the_exact_formula(noise, times):
    expected = exact_epsilon(noise, times, 1e-5)
    assert expected <= epsilon_of({noise: times}, 1e-5) + 1e-6
    assert epsilon_of({noise: times}, 1e-5) == pytest.approx(expected, rel=0.01)


def test_an_update_is_clipped_as_a_whole():
    change = {"a": torch.tensor([3.0, 0.0]), "b": torch.tensor([[4.0]])}  # its norm is 5
    clipped = protect(change, Privacy(clip=2.5))
    assert clipped["a"].tolist() == [1.5, 0.0]
    assert clipped["b"].tolist() == [[2.0]]
    assert protect(change, Privacy(clip=5.0))["b"].tolist() == [[4.0]]


def test_a_change_that_is_not_finite_stays():
    change = {"a": torch.tensor([math.nan, 1.0]), "b": torch.tensor([1e6, 1.0])}
    assert {name: tensor.tolist() for name, tensor in protect(change, Privacy(clip=1.0)).items()} == {
        "a": [0.0, 0.0], "b": [0.0, 0.0],
    }  # fmt: skip


def test_beyond_all_meaning_there_is_still_an_upper_bound():
    assert exact_epsilon(0.3, 2, 1e-5) < epsilon_of({0.3: 2}, 1e-5) < 1.1 * exact_epsilon(0.3, 2, 1e-5)
    assert epsilon_of({0.1: 10_000}, 1e-5) > 1000


def test_noise_has_the_size_it_should_have():
    nothing = {"a": torch.zeros(200_000)}
    noisy = protect(nothing, Privacy(clip=0.5, noise=3.0))["a"]
    assert float(noisy.std()) == pytest.approx(1.5, rel=0.01)
    assert abs(float(noisy.mean())) < 0.02
    assert not torch.equal(noisy, protect(nothing, Privacy(clip=0.5, noise=3.0))["a"])  # never the same again


def test_secret_numbers_are_standard_normal():
    numbers = secret_normal(torch.Size([50_001])).numpy()
    assert len(numbers) == 50_001
    assert kstest(numbers, "norm").pvalue > 1e-4
    assert abs(np.corrcoef(numbers[:25_000], numbers[25_000:50_000])[0, 1]) < 0.03


def test_numbers_that_no_noise_can_protect_are_refused():
    with pytest.raises(UserError, match="not made of real numbers"):
        protect({"classes": torch.tensor([True])}, Privacy(clip=1.0))


def test_the_ledger_remembers_over_restarts_and_refuses_to_forget(tmp_path):
    path = tmp_path / "privacy.json"
    assert Ledger(path).spent(1e-5) == (0.0, 1e-5)
    Ledger(path).charge(2.0)
    Ledger(path).charge(2.0)
    Ledger(path).charge(4.0)
    assert Ledger(path).spent(1e-5).epsilon == pytest.approx(epsilon_of({2.0: 2, 4.0: 1}, 1e-5))
    assert Ledger(path).spent(1e-5, more=4.0).epsilon == pytest.approx(epsilon_of({2.0: 2, 4.0: 2}, 1e-5))
    path.write_text("[")
    with pytest.raises(UserError, match="ledger"):
        Ledger(path).spent(1e-5)


def test_updates_without_noise_are_counted_and_no_epsilon_is_claimed_for_them(tmp_path):
    ledger = Ledger(tmp_path / "privacy.json")
    for noise in (0.0, 2.0, 0.0):
        ledger.charge(noise)
    assert ledger.bare() == 2
    assert ledger.spent(1e-5).epsilon == pytest.approx(exact_epsilon(2.0, 1, 1e-5), rel=0.01)
    assert ledger.spent(1e-5, more=2.0).epsilon == pytest.approx(exact_epsilon(2.0, 2, 1e-5), rel=0.01)
    assert Ledger(tmp_path / "none.json").bare() == 0

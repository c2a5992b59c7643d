"""FedProx's term on a quadratic, where gradient descent has a closed form."""

import math

import pytest
import torch
from torch import Tensor, nn

from semifl.learning.network import Network
from semifl.learning.training import SGD, Fit, fit
from semifl.randomness import Seed

START, GOAL = 2.0, -1.0


def bowl(network: Network, batch: Tensor) -> dict[str, Tensor]:
    """½ (w − GOAL)², for the one weight of a linear model."""
    return {"loss": 0.5 * (network(batch) - GOAL).square().sum()}


def trained(sgd: SGD, steps: int, start: float = START) -> float:
    network = Network(nn.Linear(1, 1, bias=False, dtype=torch.float64))
    one = torch.ones(1, 1, dtype=torch.float64)
    job = Fit({"weight": start * one}, [one] * steps, bowl, sgd, Seed(0))
    return float(fit(network, job).weights["weight"])


def plain(lr: float, mu: float, clip: float = 0.0) -> SGD:
    return SGD(lr, momentum=0.0, nesterov=False, weight_decay=0.0, clip_norm=clip, proximal=mu)


@pytest.mark.parametrize("mu", [0.0, 0.1, 1.0, 7.5])
@pytest.mark.parametrize("steps", [1, 2, 10])
def test_descent_is_held_to_its_start(mu: float, steps: int) -> None:
    # ½(w − g)² + μ/2 (w − s)² has its minimum at w* = (g + μ s)/(1 + μ) and curvature 1 + μ, so a step of rate η
    # shrinks the distance to w* by 1 − η(1 + μ).
    lr = 0.1
    least = (GOAL + mu * START) / (1 + mu)
    expected = least + (1 - lr * (1 + mu)) ** steps * (START - least)

    assert trained(plain(lr, mu), steps) == pytest.approx(expected, rel=1e-12)


def test_the_first_step_feels_nothing() -> None:
    assert trained(plain(0.1, 100.0), 1) == trained(plain(0.1, 0.0), 1)


def test_a_fit_is_held_to_its_own_start() -> None:
    assert trained(plain(0.1, 1.0), 200, start=4.0) == pytest.approx((GOAL + 4.0) / 2, abs=1e-9)


def test_the_whole_gradient_is_clipped() -> None:
    # One step of 0.1 · clip; then (w − g) + μ (w − s) is still longer than the clip and points the same way.
    assert trained(plain(0.1, 1.0, clip=0.5), 2) == pytest.approx(START - 2 * 0.05, abs=1e-5)
    # Were the pull added after clipping, the second step would be 0.5 − μ · 0.05 instead.
    assert not math.isclose(trained(plain(0.1, 1.0, clip=0.5), 2), START - 0.05 - 0.1 * (0.5 - 0.05), abs_tol=1e-4)

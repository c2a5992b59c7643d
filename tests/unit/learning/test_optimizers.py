"""AdamW, and a last layer that learns at a rate of its own, written out in NumPy float64."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from semifl.federation.recipe import Recipe
from semifl.federation.world import Round
from semifl.learning.network import Network
from semifl.learning.training import SGD, AdamW, Fit, fit
from semifl.randomness import Seed

STEPS = 5


class Two(nn.Module):
    """Two factors beside each other: a scale, and behind it the last linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([1.5, -0.5], dtype=torch.float64))
        self.last = nn.Linear(2, 1, bias=False, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.scale * x)


START = {
    "scale": torch.tensor([1.5, -0.5], dtype=torch.float64),
    "last.weight": torch.tensor([[0.7, 2.0]], dtype=torch.float64),
}


def inputs(count: int = STEPS) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(3, 2, generator=generator, dtype=torch.float64) for _ in range(count)]


def half_squares(network: Network, x: Tensor) -> dict[str, Tensor]:
    return {"loss": 0.5 * network(x).square().mean()}


def gradient(scale: np.ndarray, last: np.ndarray, x: np.ndarray) -> np.ndarray:
    out = x @ (scale * last)
    inner = (out[:, None] * x).mean(axis=0)
    return np.concatenate([inner * last, inner * scale])


def adamw_by_hand(rates: np.ndarray, decay: float, steps: list[Tensor]) -> np.ndarray:
    W = np.array([1.5, -0.5, 0.7, 2.0])
    m, v = np.zeros(4), np.zeros(4)
    for t, x in enumerate(steps, start=1):
        g = gradient(W[:2], W[2:], x.numpy())
        W = W - rates * decay * W
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        W = W - rates * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return W


def vector(weights: dict[str, Tensor]) -> np.ndarray:
    return np.concatenate([weights["scale"].numpy(), weights["last.weight"].numpy()[0]])


@pytest.mark.parametrize("backbone_lr", [1.0, 0.1])
def test_adamw_with_and_without_a_rate_of_its_own_for_the_last_layer(backbone_lr):
    optimizer = AdamW(0.05, weight_decay=0.1, backbone_lr=backbone_lr)
    fitted = fit(Network(Two()), Fit(START, inputs(), half_squares, optimizer, Seed(0)))
    rates = 0.05 * np.array([backbone_lr, backbone_lr, 1, 1])
    assert np.allclose(vector(fitted.weights), adamw_by_hand(rates, 0.1, inputs()), atol=1e-9)


def test_sgd_steps_of_both_parts():
    optimizer = SGD(0.05, momentum=0.0, nesterov=False, weight_decay=0.0, backbone_lr=0.5)
    fitted = fit(Network(Two()), Fit(START, inputs(1), half_squares, optimizer, Seed(0)))
    g = gradient(np.array([1.5, -0.5]), np.array([0.7, 2.0]), inputs()[0].numpy())
    expected = np.array([1.5, -0.5, 0.7, 2.0]) - 0.05 * np.array([0.5, 0.5, 1, 1]) * g
    assert np.allclose(vector(fitted.weights), expected, atol=1e-12)


@pytest.mark.parametrize("kind", [SGD, AdamW])
@pytest.mark.parametrize("backbone_lr", [1.0, 0.3])
def test_what_is_remembered_makes_two_fits_one(kind, backbone_lr):
    optimizer = kind(0.05, backbone_lr=backbone_lr)
    network = Network(Two())
    whole = fit(network, Fit(START, inputs(), half_squares, optimizer, Seed(0)))
    first = fit(network, Fit(START, inputs()[:2], half_squares, optimizer, Seed(0)))
    second = fit(network, Fit(first.weights, inputs()[2:], half_squares, optimizer, Seed(0), first.memory))
    for name, tensor in whole.weights.items():
        assert torch.equal(second.weights[name], tensor)
    assert len(first.memory["momentum"]) == 4
    for name, tensor in whole.memory.items():
        assert torch.equal(second.memory[name], tensor)


def test_the_rate_rises_and_then_follows_the_cosine():
    recipe = Recipe(lr=0.4, warmup_rounds=4, optimizer="adamw", backbone_lr=0.2)
    rates = [recipe.local_sgd(Round(index, 0.0, Seed(0))).lr for index in range(1, 7)]
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])
    assert isinstance(recipe.local_sgd(Round(1, 0.0, Seed(0))), AdamW)
    assert recipe.local_sgd(Round(1, 0.0, Seed(0))).backbone_lr == 0.2
    assert Recipe(lr=0.4).local_sgd(Round(1, 0.5, Seed(0))).lr == pytest.approx(0.2)

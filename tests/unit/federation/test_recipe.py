"""What federated methods share: weights of rare classes, and bad values named."""

import numpy as np
import pytest
import torch
from torch import nn

from semifl.data.epochs import LabeledBatch
from semifl.federation.recipe import Recipe, balancing_weights
from semifl.learning.network import Network


def test_rare_classes_weigh_as_much_as_common_ones() -> None:
    labels = torch.tensor([0] * 6 + [2] * 2)
    weights = balancing_weights(labels, 3)
    # 8 labels of 2 classes that are there: 8 / (2 · 6) and 8 / (2 · 2); nobody has class 1.
    np.testing.assert_allclose(weights.numpy(), [8 / 12, 0.0, 2.0], rtol=1e-6)
    assert float(weights[labels].mean()) == pytest.approx(1.0)


def test_the_weighted_loss_by_hand() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    network = Network(module)
    A, b = module[1].weight.detach().double().numpy(), module[1].bias.detach().double().numpy()
    x, y = np.random.default_rng(0).normal(size=(5, 4)), np.array([0, 0, 2, 1, 2])
    z = x @ A.T + b
    each = np.log(np.exp(z).sum(axis=1)) - z[np.arange(5), y]
    site = torch.tensor([0, 0, 0, 1, 2, 2])
    weight = np.array([6 / (3 * 3), 6 / (3 * 1), 6 / (3 * 2)])
    batch = LabeledBatch(torch.tensor(x, dtype=torch.float32).view(5, 1, 2, 2), torch.tensor(y))
    balanced = Recipe(class_weights=True).labeled_loss(site, 3)(network, batch)["loss"].item()
    plain = Recipe().labeled_loss(site, 3)(network, batch)["loss"].item()
    assert balanced == pytest.approx((weight[y] * each).sum() / weight[y].sum(), rel=1e-5)
    assert plain == pytest.approx(each.mean(), rel=1e-5)


@pytest.mark.parametrize(
    "bad",
    [
        {"activity_rate": 1.5},
        {"client_epochs": 0},
        {"lr": 0.0},
        {"proximal": -1.0},
        {"weight_decay": float("inf")},
    ],
)
def test_bad_values_are_named(bad: dict) -> None:
    with pytest.raises(ValueError, match=f"^{next(iter(bad))} must"):
        Recipe(**bad)

"""FedBN's division of a model: what travels, what stays, and how they come together again."""

import pytest
import torch
from torch import nn

from semifl.learning import batchnorm
from semifl.learning.local_norm import kept, restored, shared
from semifl.learning.network import Network
from semifl.learning.weights import Weights, moved
from semifl.models.wide_resnet import WideResNet

STATS = {"1": batchnorm.Moments(2, torch.zeros(2), torch.ones(2))}
NAMES = ["0.weight", "1.weight", "1.bias", "10.weight", "11.bias"]  # only "1" is a BatchNorm layer, not "10" or "11"


def model(value: float) -> Weights:
    return {name: torch.full((2,), value + n) for n, name in enumerate(NAMES)}


def test_norms_stay_and_the_rest_travels() -> None:
    assert list(shared(model(0.0), STATS)) == ["0.weight", "10.weight", "11.bias"]
    assert {name: float(t[0]) for name, t in kept(model(0.0), STATS).items()} == {
        "norm 1.weight": 1.0,
        "norm 1.bias": 2.0,
    }


def test_a_client_gets_its_own_norms_back() -> None:
    own = restored(model(10.0), kept(model(0.0), STATS) | {"momentum": torch.zeros(7)})

    assert {name: float(t[0]) for name, t in own.items()} == dict(zip(NAMES, [10.0, 1.0, 2.0, 13.0, 14.0], strict=True))


@pytest.mark.parametrize("memory", [None, {}, {"momentum": torch.zeros(7)}])
def test_a_client_that_remembers_no_norms_takes_the_servers(memory: dict | None) -> None:
    sent = model(10.0)

    assert restored(sent, memory) == sent


def test_a_change_of_what_travels_leaves_the_servers_norms_and_the_order_of_names() -> None:
    whole = moved(model(0.0), shared(model(5.0), STATS))

    assert whole is not None
    assert [(name, float(t[0])) for name, t in whole.items()] == list(
        zip(NAMES, [5.0, 1.0, 2.0, 11.0, 13.0], strict=True)  # 0 + 5, 1, 2, 3 + 8, 4 + 9
    )
    assert moved(model(0.0), None) is None


def test_in_a_real_model_exactly_the_batchnorm_layers_stay() -> None:
    network = Network(WideResNet(10, 1).build(3, 8, 4))
    stats = batchnorm.collect(network.module, [torch.randn(4, 3, 8, 8)])
    norms = {
        f"{name}.{part}"
        for name, layer in network.module.named_modules()
        if isinstance(layer, nn.BatchNorm2d)
        for part in ("weight", "bias")
    }

    assert {name.removeprefix("norm ") for name in kept(network.weights(), stats)} == norms
    assert set(shared(network.weights(), stats)) == set(network.weights()) - norms


def test_without_batchnorm_everything_travels() -> None:
    assert shared(model(0.0), {}).keys() == model(0.0).keys()
    assert kept(model(0.0), {}) == {}

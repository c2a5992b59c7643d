"""What every model in the folder promises."""

import dataclasses

import pytest
import torch

from semifl import registry
from semifl.configuration.config import MODELS, decode
from semifl.learning.network import Network

pytestmark = pytest.mark.parametrize("name", registry.names(MODELS))


@pytest.mark.parametrize(("channels", "size", "classes"), [(1, 8, 10), (3, 32, 7)])
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_maps_pictures_to_logits_and_learns_in_every_parameter(name, channels, size, classes, norm) -> None:
    torch.manual_seed(0)
    module = registry.find(MODELS, name, "model.name")(norm=norm).build(channels, size, classes)
    network = Network(module)
    logits = network(torch.randn(4, channels, size, size))
    assert logits.shape == (4, classes)
    logits.square().sum().backward()
    dead = [each for each, p in module.named_parameters() if float(p.grad.abs().max()) == 0]
    assert dead == []


def test_survives_toml(name) -> None:
    config = decode({"model": {"name": name, "norm": "group"}})
    assert decode(config.table()).model_keys == config.model_keys
    assert dataclasses.is_dataclass(registry.find(MODELS, name, "model.name"))

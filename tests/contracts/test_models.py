"""What every model in the folder promises."""

import dataclasses

import pytest
import torch

import backbones
from semifl import registry
from semifl.configuration.config import MODELS, decode
from semifl.learning.network import Network

pytestmark = pytest.mark.parametrize("name", registry.names(MODELS))


@pytest.fixture(autouse=True, scope="module")
def backbone(tmp_path_factory):
    """What a model that stands on a backbone finds if nobody names another."""
    folder = tmp_path_factory.mktemp("data")
    backbones.lite(folder / "backbones/efficientnet_lite0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SEMIFL_DATA", str(folder))
        yield


def keys(name: str, norm: str) -> dict[str, str]:
    """The norm, where it is a model's own choice; else as much as can be trained."""
    known = {field.name for field in dataclasses.fields(registry.find(MODELS, name, "model.name"))}
    return {"norm": norm} if "norm" in known else {"train": "all", "size": 32} if "train" in known else {}


@pytest.mark.parametrize(("channels", "size", "classes"), [(1, 8, 10), (3, 32, 7)])
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_maps_pictures_to_logits_and_learns_in_every_parameter(name, channels, size, classes, norm) -> None:
    torch.manual_seed(0)
    module = registry.find(MODELS, name, "model.name")(**keys(name, norm)).build(channels, size, classes)
    network = Network(module)
    logits = network(torch.randn(4, channels, size, size))
    assert logits.shape == (4, classes)
    logits.square().sum().backward()
    dead = [each for each, p in module.named_parameters() if float(p.grad.abs().max()) == 0]
    assert dead == []


def test_survives_toml(name) -> None:
    config = decode({"model": {"name": name, **keys(name, "group")}})
    assert decode(config.table()).model_keys == config.model_keys
    assert dataclasses.is_dataclass(registry.find(MODELS, name, "model.name"))

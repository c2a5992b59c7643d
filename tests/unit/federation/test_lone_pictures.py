"""Clients with a single picture, and a model whose features shrink to one value per channel."""

import pytest
import torch
from torch import nn

from semifl.configuration.config import decode
from semifl.data.partition import Holdings
from semifl.errors import UserError
from semifl.running.loop import start
from testbed import Testbed
from toys import toy_table


def shrinking(channels: int, classes: int) -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.BatchNorm1d(channels), nn.Linear(channels, classes))


@pytest.mark.parametrize("name", ["semifl", "fedavg", "fedavg_fixmatch", "fedrgd", "fedmatch"])
def test_a_client_with_one_picture_takes_part(name: str, tmp_path) -> None:
    table = toy_table()
    table["data"] = {"name": "toys:ToyData", "labeled": 6, "clients": 42}  # 42 pictures are left: one each
    table["model"] = {"name": "unit.federation.test_lone_pictures:shrinking"}
    method = {"name": name, "activity_rate": 0.2, "statistics": "all"}
    if name != "fedavg":
        method["threshold"] = 0.0
    result = start(decode({**table, "rounds": 2, "method": method, "labels_only": False}), tmp_path / "run")
    assert result["rounds"] == 2


@pytest.mark.parametrize("name", ["semifl", "balanced"])
def test_a_client_without_a_picture_abstains(name: str) -> None:
    testbed = Testbed(name=name, **({"threshold": 0.0} if name == "semifl" else {}))
    order, offsets = testbed.place.holdings.order, testbed.place.holdings.offsets.clone()
    offsets[1] = 0  # the second client has what the first had as well
    testbed.place.holdings = Holdings(order, offsets)
    testbed.round(1, testbed.method.start(testbed.first))
    assert [bool(reply.update) for reply in testbed.clients.replies] == [False, True, True, True]


def test_a_burst_model_is_not_remembered(tmp_path) -> None:
    table = toy_table()
    table["method"] = {"name": "fedavg", "local_norm": True, "lr": 1e30, "activity_rate": 1.0}
    start(decode({**table, "rounds": 2, "labels_only": False}), tmp_path / "run")
    for path in (tmp_path / "run/checkpoint/memory").rglob("*.safetensors"):
        from safetensors.torch import load_file

        assert all(bool(torch.isfinite(tensor).all()) for tensor in load_file(path).values())


@pytest.mark.parametrize("key", ["server_batch", "client_batch"])
def test_batches_of_one_picture_are_refused_where_a_norm_cannot_take_them(key: str, tmp_path) -> None:
    table = {**toy_table(), "model": {"name": "unit.federation.test_lone_pictures:shrinking"}, "labels_only": False}
    table["method"][key] = 1
    with pytest.raises(UserError, match=f"method.{key} = 1 is too few for this model"):
        start(decode(table), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    start(decode({**table, "model": {"name": "toys:linear_model"}, "rounds": 1}), tmp_path / "without a norm")

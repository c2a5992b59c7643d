"""The seam without an engine: packets handed from hub to sites in this process give the bits of a simulation."""

import json

import pytest
import torch
from safetensors.torch import load_file

from by_hand import transport_to
from federated_pictures import SITES, make_federation, run_table
from semifl.configuration.build import build_world
from semifl.configuration.config import decode
from semifl.deploy.hub import Hub, hub_config, run_federation
from semifl.deploy.order import accept, write_order
from semifl.deploy.policy import Limits, Policy, Share
from semifl.learning.weights import digest
from semifl.running.context import Silent
from semifl.running.loop import start

ALL = Policy(Share(class_histogram=True, statistics=True), Limits(smallest_count=1))


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "cache"))
    return make_federation(tmp_path / "pictures")


@pytest.fixture
def transport(pictures, tmp_path):
    transport = transport_to(pictures, tmp_path, ALL)
    yield transport
    transport.close()


def lines(path):
    records = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    for record in records:
        del record["seconds"]
    return records


def losses(record):
    """Take the clients' mean losses out of a record."""
    found = {**{key: record.pop(key) for key in ("client_loss", "agreement")}, **record["terms"].pop("clients")}
    return {key: value for key, value in found.items() if value is not None}


FAST = {"name": "fast_cnn", "widths": [4, 6, 6]}  # a model whose frozen stem is made of the hub's pictures


@pytest.mark.parametrize(
    ("method", "model"),
    [
        ({}, {}),
        ({}, FAST),
        ({"statistics": "cohort", "local_norm": True}, {}),
        ({"name": "fedmatch", "threshold": 0.4, "helper_interval": 1}, {}),
    ],
    ids=["semifl", "fast_cnn", "with statistics and memory", "fedmatch"],
)
def test_packets_give_the_bits_of_a_simulation(pictures, transport, tmp_path, method, model):
    table = run_table(**method)
    if model:  # its head makes it unsure at first, and who trains on few pictures is told to abstain by the policy
        table |= {"model": model, "method": {**table["method"], "threshold": 0.3}}
    simulated = {**table, "data": {**table["data"], "name": "folder", "root": str(pictures)}}
    expected = start(decode(simulated), tmp_path / "local")
    result = run_federation(Hub(pictures, tmp_path / "runs", SITES), "first", table, transport, Silent())
    remote, local = lines(tmp_path / "runs" / "first"), lines(tmp_path / "local")
    if method.get("name") == "fedmatch":  # a simulation reckons without the zeros that need not travel
        for record in remote + local:
            del record["bytes_up"]
    mean_losses = [[losses(record) for record in records] for records in (remote, local)]
    assert mean_losses[0] == [pytest.approx(each, rel=0.005) for each in mean_losses[1]]  # they leave with three digits
    assert remote == local
    assert result["accuracy"] == expected["accuracy"]
    models = [load_file(folder / "model.safetensors") for folder in (tmp_path / "runs" / "first", tmp_path / "local")]
    assert digest(models[0]) == digest(models[1])


def test_sites_have_the_stem_of_the_hub(pictures, tmp_path):
    table = {**run_table(rounds=1), "model": FAST}
    start(decode({**table, "data": {**table["data"], "name": "folder", "root": str(pictures)}}), tmp_path / "local")
    world = build_world(hub_config(table, Hub(pictures, tmp_path, SITES)))
    order = json.loads(json.dumps(write_order(world, "first.0123abcd", SITES)))  # as it travels
    site = accept(order, SITES[1], ALL).build().state_dict()["0.whitening"]

    assert torch.equal(site, world.model_factory()().state_dict()["0.whitening"])
    assert torch.equal(site, load_file(tmp_path / "local/model.safetensors")["0.whitening"])

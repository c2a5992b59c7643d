"""The seam without an engine: packets handed from hub to sites in this process give the bits of a simulation."""

import json

import pytest
from safetensors.torch import load_file

from by_hand import transport_to
from federated_pictures import SITES, make_federation, run_table
from semifl.configuration.config import decode
from semifl.deploy.hub import Hub, run_federation
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


@pytest.mark.parametrize(
    "method",
    [{}, {"statistics": "cohort", "local_norm": True}, {"name": "fedmatch", "threshold": 0.4, "helper_interval": 1}],
    ids=["semifl", "with statistics and memory", "fedmatch"],
)
def test_packets_give_the_bits_of_a_simulation(pictures, transport, tmp_path, method):
    table = run_table(**method)
    simulated = {**table, "data": {**table["data"], "name": "folder", "root": str(pictures)}}
    expected = start(decode(simulated), tmp_path / "local")
    result = run_federation(Hub(pictures, tmp_path / "runs", SITES), "first", table, transport, Silent())
    remote, local = lines(tmp_path / "runs" / "first"), lines(tmp_path / "local")
    if method.get("name") == "fedmatch":  # a simulation reckons without the zeros that need not travel
        for record in remote + local:
            del record["bytes_up"]
    assert remote == local
    assert result["accuracy"] == expected["accuracy"]
    models = [load_file(folder / "model.safetensors") for folder in (tmp_path / "runs" / "first", tmp_path / "local")]
    assert digest(models[0]) == digest(models[1])

"""What every method promises, whichever files are in the folder."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch

from semifl import registry, toml
from semifl.configuration.build import build_world
from semifl.configuration.config import METHODS, decode
from semifl.federation.local import LocalFederation
from semifl.federation.sites import ServerSite
from semifl.federation.tally import Tally
from semifl.federation.workers import Here, threads
from semifl.federation.world import Round
from semifl.learning import trees
from semifl.learning.weights import Snapshot
from semifl.randomness import Seed
from semifl.running.context import Silent
from semifl.running.loop import resume, start
from toys import method_table as table

pytestmark = pytest.mark.parametrize("name", registry.names(METHODS))
CLIENT_ATTRIBUTES = {"facts", "images", "seed", "memory", "fit", "outputs", "statistics", "pseudo_labels", "observe"}


def outcome(directory: Path) -> tuple[bytes, list[dict]]:
    records = [json.loads(line) for line in (directory / "rounds.jsonl").read_text().splitlines()]
    return (directory / "model.safetensors").read_bytes(), [{**record, "seconds": None} for record in records]


def test_is_a_frozen_dataclass_that_says_what_it_needs(name: str) -> None:
    cls = registry.find(METHODS, name, "method.name")
    assert dataclasses.is_dataclass(cls)
    assert cls.__dataclass_params__.frozen
    needs = decode(table(name)).method.thing.needs
    assert isinstance(needs, frozenset)
    assert needs <= {"client_labels", "pooled_images"}


def test_is_a_function_of_its_seed(name: str, tmp_path: Path) -> None:
    for run, seed in (("a", 0), ("b", 0), ("c", 1)):
        start(decode(table(name, seed)), tmp_path / run)
    assert outcome(tmp_path / "a") == outcome(tmp_path / "b")
    assert outcome(tmp_path / "a")[0] != outcome(tmp_path / "c")[0]


def test_resumes_exactly(name: str, tmp_path: Path) -> None:
    class Stop(Silent):
        def round(self, record, best) -> None:
            raise KeyboardInterrupt

    start(decode(table(name)), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        start(decode(table(name)), tmp_path / "cut", observer=Stop())
    resume(tmp_path / "cut")
    assert outcome(tmp_path / "cut") == outcome(tmp_path / "whole")


def test_survives_toml(name: str, tmp_path: Path) -> None:
    config = decode(table(name))
    assert decode({**table(name), **config.table()}).method == config.method
    assert toml.dumps(decode(config.table()).table()) == toml.dumps(config.table())


class Guarded:
    """A client that raises on anything the protocol does not name."""

    def __init__(self, site: object, allowed: set[str]) -> None:
        object.__setattr__(self, "_site", site)
        object.__setattr__(self, "_allowed", allowed)

    def __getattr__(self, attribute: str) -> object:
        if attribute not in object.__getattribute__(self, "_allowed"):
            raise AssertionError(f"a method looked at client.{attribute}")
        return getattr(object.__getattribute__(self, "_site"), attribute)

    def __setattr__(self, attribute: str, value: object) -> None:
        raise AssertionError(f"a method changed client.{attribute}")


class Shielding:
    """A method whose clients are guarded."""

    def __init__(self, method: object, allowed: set[str]) -> None:
        self._method, self._allowed = method, allowed

    def __getattr__(self, attribute: str) -> object:
        return getattr(self._method, attribute)

    def client_update(self, client, message, t):
        return self._method.client_update(Guarded(client, self._allowed), message, t)


def test_sees_clients_only_through_the_protocol(name: str) -> None:
    world = build_world(decode(table(name)))
    place, tally = world.place(None, "cpu"), Tally()
    method = world.config.method.thing
    server = ServerSite(place, world.division.server, world.data.labels, Here(place), 1, tally)
    state = method.start(place.network.weights())
    for index in (1, 2):
        t = Round(index, (index - 1) / 2, Seed(0).under("round", index))
        allowed = CLIENT_ATTRIBUTES | ({"labels"} if "client_labels" in method.needs else set())
        shielded = Shielding(method, allowed)
        clients = LocalFederation(Here(place), len(world.division.clients), shielded, tally)
        state, model = method.round(t, state, server.at(t), clients)
        assert isinstance(model, Snapshot)
    assert len(tally.replies) > 0 or "pooled_images" in method.needs or name == "centralized"
    trees.flatten(state, [])  # raises if the State holds anything a checkpoint cannot
    assert set(method.weights(state)) == {name for name, _ in place.build().named_parameters()}


def played(name: str, stack: int, pool_of=Here) -> tuple[dict, list]:
    """The model after a round in which everybody takes part, and what became of each client."""
    toy = table(name)
    rate = {"activity_rate": 1.0} if "activity_rate" in toy["method"] else {}
    model = {"name": "cnn", "width": 4}  # without dropout, which would be refused
    data = {**toy["data"], "partition": {"name": "dirichlet", "alpha": 0.3}}  # clients of different size
    world = build_world(decode({**toy, "model": model, "data": data, "method": {**toy["method"], **rate}}))
    place, tally = world.place(None, "cpu"), Tally()
    pool, method = pool_of(place), world.config.method.thing
    server = ServerSite(place, world.division.server, world.data.labels, pool, 1, tally)
    clients = LocalFederation(pool, len(world.division.clients), method, tally, stack=stack)
    t = Round(1, 0.0, Seed(0).under("round", 1))
    with threads(1):
        state = method.round(t, method.start(place.network.weights()), server.at(t), clients).state
    pool.close()
    return method.weights(state), tally.replies


def test_clients_that_are_stacked_learn_as_they_do_one_by_one(name: str) -> None:
    alone, replies = played(name, stack=1)
    for stack in (2, 3):
        together, stacked_replies = played(name, stack)
        for key, tensor in alone.items():
            torch.testing.assert_close(together[key], tensor, rtol=0, atol=1e-5)
        assert [reply.outcome for reply in stacked_replies] == [reply.outcome for reply in replies]

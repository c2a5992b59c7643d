"""What every method promises, whichever files are in the folder."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

from semifl import registry, toml
from semifl.cli import invoke
from semifl.configuration.config import METHODS, Config, decode
from semifl.federation.recipe import Recipe
from semifl.federation.tally import Tally
from semifl.federation.world import RoundResult, Update
from semifl.learning.weights import Snapshot, Weights
from semifl.methods.semifl import SemiFL
from semifl.running.contracts import CONTRACTS, ContractBroken, round_of_all, stacks, uses_the_protocol
from toys import method_table, toy_table

CNN = {"name": "cnn", "width": 4}


def stackable(table: dict) -> dict:
    """With clients of different size, and a model without dropout."""
    return {**table, "model": CNN, "data": {**table["data"], "partition": {"name": "dirichlet", "alpha": 0.3}}}


@pytest.mark.parametrize("name", registry.names(METHODS))
@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract.__name__)
def test_keeps_the_contract(contract: Callable[[Config], str], name: str) -> None:
    table = method_table(name)
    skipped = contract(decode(stackable(table) if contract is stacks else table))
    assert bool(skipped) == (contract.__name__ == "works_alone" and "client_labels" in decode(table).method.thing.needs)


@pytest.mark.parametrize("name", registry.names(METHODS))
def test_clients_that_are_stacked_learn_as_they_do_one_by_one(name: str) -> None:
    """In a round as short as this, to what another order of additions changes."""
    config = decode(stackable(method_table(name)))
    alone, replies = round_of_all(config, stack=1)
    for stack in (2, 3):
        together, stacked_replies = round_of_all(config, stack)
        for key, tensor in alone.items():
            torch.testing.assert_close(together[key], tensor, rtol=0, atol=1e-5)
        assert [reply.outcome for reply in stacked_replies] == [reply.outcome for reply in replies]


@pytest.mark.parametrize("name", registry.names(METHODS))
def test_asks_its_clients(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the contract about them would be kept by not asking anybody."""
    seen = []
    received = Tally.received
    monkeypatch.setattr(Tally, "received", lambda tally, reply: (seen.append(reply), received(tally, reply)))
    config = decode(method_table(name))
    uses_the_protocol(config)
    assert seen or "pooled_images" in config.method.thing.needs or name == "centralized"


# Methods that break one contract each


@dataclass(frozen=True)
class Curious(SemiFL):
    def client_update(self, client, model, t):
        assert client._oracle
        return super().client_update(client, model, t)


@dataclass(frozen=True)
class Meddling(SemiFL):
    def client_update(self, client, model, t):
        client.memory = {}
        return super().client_update(client, model, t)


@dataclass(frozen=True)
class Dicing(SemiFL):
    def client_loss(self, network, batch):
        terms = super().client_loss(network, batch)
        return {**terms, "loss": terms["loss"] * (1 + SHAKEN.random_())}


class SHAKEN:
    """A generator that nobody seeds."""

    generator = torch.Generator()

    @classmethod
    def random_(cls) -> float:
        return float(torch.rand((), generator=cls.generator))


@dataclass(frozen=True)
class Forgetful(SemiFL):
    """What it counts between rounds is lost when a process ends; here, when a run begins."""

    def start(self, weights):
        COUNTED.clear()
        return super().start(weights)

    def server_fit(self, t, W, server, memory=None, steps=0):
        COUNTED.append(t.index)
        return super().server_fit(t, W, server, memory, steps=len(COUNTED))


COUNTED: list[int] = []


@dataclass(frozen=True)
class Faulty(Meddling):
    """Breaks two contracts: it is lost without clients, too."""

    def aggregate(self, replies, start):
        return super().aggregate([next(iter(replies))], start)


class Unwritable(NamedTuple):
    weights: Weights
    function: Any


@dataclass(frozen=True)
class Closure(Recipe):
    def start(self, weights):
        return Unwritable(weights, print)

    def round(self, t, state, server, clients):
        return RoundResult(state, Snapshot(state.weights, server.statistics(state.weights)))

    def client_update(self, client, message, t) -> Update | None:
        return None

    def finish(self, t, state, server, clients):
        return Snapshot(state.weights, server.statistics(state.weights))

    def weights(self, state):
        return state.weights


@pytest.mark.parametrize(
    ("method", "contract", "said"),
    [
        (Curious, "uses_the_protocol", "looks at client._oracle, which no client has in a real federation"),
        (Meddling, "uses_the_protocol", "sets client.memory: what a client keeps belongs to Update.memory"),
        (Closure, "uses_the_protocol", "its State cannot be written to a checkpoint"),
        (Dicing, "same_seed_same_bits", "two runs with one seed differ in .* of round 1"),
        (Forgetful, "resumes_exactly", "interrupted and resumed differs in .* of round 2"),
    ],
)
def test_a_broken_contract_is_named(method: type, contract: str, said: str) -> None:
    config = decode(toy_table() | {"rounds": 2, "labels_only": False})
    thing = method(activity_rate=1.0, **({"threshold": 0.0, "client_epochs": 1} if method is not Closure else {}))
    config = replace(config, method=replace(config.method, name=f"{__name__}:{method.__name__}", thing=thing))
    with pytest.raises(ContractBroken, match=said):
        next(each for each in CONTRACTS if each.__name__ == contract)(config)


def test_one_command_tries_a_method_of_a_persons_own(tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    method = {"name": f"{__name__}:Faulty", "client_epochs": 1, "server_epochs": 1}
    (tmp_path / "mine.toml").write_text(toml.dumps({**toy_table(), "rounds": 50, "method": method}))
    assert invoke(["check", str(tmp_path / "mine.toml"), "--contracts"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(CONTRACTS) + 1
    assert [line.split()[0] for line in lines[:3]] == ["kept", "kept", "BROKEN"]
    assert "client_update sets client.memory" in lines[2]
    assert "test_methods.py:" in lines[2]
    assert lines[3].startswith(
        "BROKEN   Work in a federation that nobody has joined, as the labels-only model does: Stop"
    )
    assert lines[-2].startswith("untried")  # the toys' model has dropout
    assert invoke(["check", str(tmp_path / "mine.toml"), "--contracts", "--set", "method.name=semifl"]) == 0

"""What a site promises, it keeps whatever the method: every method that can be deployed is tried."""

import dataclasses
import json

import pytest

from by_hand import transport_to
from federated_pictures import SITES, make_federation, run_table
from semifl import registry
from semifl.deploy import wire
from semifl.deploy.hub import Hub, run_federation
from semifl.deploy.order import refuse_work
from semifl.deploy.policy import Limits, Policy, Privacy
from semifl.deploy.privacy import Ledger
from semifl.errors import UserError
from semifl.running.context import Silent

NOISE = Privacy(clip=0.05, noise=1.0)
EVERY = {name: registry.find("semifl.methods", name, "method") for name in registry.names("semifl.methods")}
METHODS = {name: cls for name, cls in EVERY.items() if not cls().needs and hasattr(cls, "client_update")}


def test_the_methods_that_can_be_deployed():
    assert {"semifl", "fedavg_fixmatch", "fedmatch", "fedrgd"} <= METHODS.keys()


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "cache"))
    return make_federation(tmp_path / "pictures")


def table_of(name, rounds, **fields):
    own = {field.name for field in dataclasses.fields(METHODS[name])}
    wanted = {
        "activity_rate": 1.0,
        "client_epochs": 1,
        "server_epochs": 1,
        "server_batch": 4,
        "statistics": "server",
        **fields,
    }
    table = run_table(rounds)
    table["method"] = {"name": name, **{key: value for key, value in wanted.items() if key in own}}
    return table


def run_with(pictures, folder, policy, table):
    """The replies of the sites, in JSON's words, and the records of the run."""
    transport = transport_to(pictures, folder, policy, trains_apart=False)
    try:
        run_federation(Hub(pictures, folder / "runs", SITES), "run", table, transport, Silent())
    finally:
        transport.close()
    packets = [wire.unpack(answer, {}) for _, _, answer in transport.packets]
    records = [json.loads(line) for line in (folder / "runs" / "run" / "rounds.jsonl").read_text().splitlines()]
    return [packet for packet in packets if packet.kind != "hello"], records


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("threshold", [1.0, 0.0], ids=["sure of nothing", "sure of all"])
def test_with_noise_nobody_can_tell_who_was_sure(pictures, tmp_path, name, threshold):
    """Sites with too few sure pictures answer and are charged exactly like the others."""
    policy = Policy(limits=Limits(minimum_examples=10), privacy=NOISE)
    table = {**table_of(name, 2, threshold=threshold), "deploy": {"largest_update": 0.0}}
    replies, records = run_with(pictures, tmp_path, policy, table)
    assert [packet.facts["outcome"] for packet in replies] == ["trained"] * 6
    assert {tuple(packet.facts) for packet in replies} == {("outcome", "signals", "spent", "examples")}
    assert [record["abstained"] + record["rejected"] + record["failed"] for record in records] == [[], []]
    ledger = Ledger(tmp_path / "memory" / SITES[0] / "privacy.json")
    assert ledger._releases() == {1.0: 2}


@pytest.mark.parametrize("name", METHODS)
def test_what_the_noise_changes_is_as_long_as_it_says(pictures, tmp_path, name):
    """Noise of 1 × 0.05 on each of n numbers, whatever the method sends: √n · 0.05 long, and clipped to 0.05 more."""
    table = {**table_of(name, 1, threshold=0.0), "deploy": {"largest_update": 0.0}}
    replies, _ = run_with(pictures, tmp_path, Policy(privacy=NOISE), table)
    for packet in replies:
        numbers = sum(tensor.numel() for tensor in packet.body.values())
        length = sum(float(tensor.double().square().sum()) for tensor in packet.body.values()) ** 0.5
        assert length == pytest.approx(0.05 * numbers**0.5, rel=0.1)


@pytest.mark.parametrize("name", METHODS)
def test_noise_that_the_hub_would_turn_away_is_never_charged(pictures, tmp_path, name):
    policy = Policy(privacy=Privacy(clip=100.0, noise=50.0))
    replies, records = run_with(pictures, tmp_path, policy, table_of(name, 2, threshold=0.0))
    assert [packet.facts["outcome"] for packet in replies] == ["abstained"] * 6
    assert all(packet.facts["spent"]["epsilon"] == 0 for packet in replies)
    assert [record["rejected"] for record in records] == [[], []]
    assert not list((tmp_path / "memory").rglob("privacy.json"))


@pytest.mark.parametrize("name", METHODS)
def test_without_noise_an_update_is_clipped_to_its_length(pictures, tmp_path, name):
    table = table_of(name, 1, threshold=0.0, lr=0.1)
    replies, _ = run_with(pictures, tmp_path, Policy(privacy=Privacy(clip=0.01)), table)
    for packet in replies:
        length = sum(float(tensor.double().square().sum()) for tensor in packet.body.values()) ** 0.5
        assert length == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("name", METHODS)
def test_no_setting_of_any_method_asks_for_more_than_the_policy_allows(name):
    """Every whole number among a method's settings is raised; the policy notices, or it asks for no more work."""
    cls, policy = METHODS[name], Policy(limits=Limits(most_epochs=1, most_steps=50))
    least = {key: 1 for key in ("client_epochs", "iterations", "laps") if key in _whole_numbers(cls)}
    refuse_work(cls(**least, client_batch=10), 100, policy)  # one epoch of 10 steps, or one step
    for key in _whole_numbers(cls) - {"client_batch", "server_batch"}:
        try:
            greedy = cls(**{**least, "client_batch": 10, key: 3000})
        except ValueError:
            continue  # the method itself refuses it
        work = greedy.client_work(100)
        if (work.passes, work.steps) == tuple(cls(**least, client_batch=10).client_work(100)):
            continue  # not a matter of work
        with pytest.raises(UserError, match=r"limits\.most_"):
            refuse_work(greedy, 100, policy)


def _whole_numbers(cls):
    return {field.name for field in dataclasses.fields(cls) if isinstance(field.default, int)} - {
        field.name for field in dataclasses.fields(cls) if isinstance(field.default, bool)
    }


def test_the_settings_that_are_work_are_known_to_be():
    passes = {
        ("semifl", "client_epochs"): 3000,
        ("fedmatch", "client_epochs"): 3000,
        ("fedrgd", "iterations"): 300,  # 3,000 steps of 10 pictures, of 100
        ("fedsgd_fixmatch", "laps"): 300,
    }
    for (name, key), expected in passes.items():
        assert METHODS[name](**{key: 3000, "client_batch": 10}).client_work(100).passes == expected
    assert METHODS["fedrgd"](iterations=3000, client_batch=1000).client_work(100).passes == 3000


def test_a_site_refuses_fedrgd_with_three_thousand_steps(pictures, tmp_path):
    table = table_of("fedrgd", 1, client_epochs=1, iterations=3000)
    with pytest.raises(UserError, match=r"limits\.most_epochs"):
        run_with(pictures, tmp_path, Policy(limits=Limits(most_epochs=1)), table)


def test_a_client_has_the_number_of_its_site(pictures, tmp_path, monkeypatch):
    """Its place among the sites, which the order tells every site anyway."""
    seen = []

    def client_update(self, client, model, t):
        seen.append((client.index, len(client.images)))

    monkeypatch.setattr(METHODS["semifl"], "client_update", client_update)
    next((pictures / "clients" / SITES[1]).iterdir()).unlink()  # so that the sites can be told apart
    run_with(pictures, tmp_path, Policy(), table_of("semifl", 1))
    held = [len(list((pictures / "clients" / site).iterdir())) for site in SITES]
    assert sorted(seen) == list(enumerate(held))

"""Flower as the engine: real processes, TLS and node authentication on loopback, and the bits of a simulation."""

import json
import os
import shutil
import threading
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from safetensors.torch import load_file

from federated_pictures import make_federation, run_table
from semifl import toml
from semifl.configuration.config import decode, read
from semifl.deploy import wire
from semifl.deploy.hub import Hub, hub_config, read_settings
from semifl.errors import UserError
from semifl.learning.weights import digest
from semifl.running.loop import start

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'semifl[flower]'")
from deploy.flower_net import APP, Net, descendants, published_rule
from semifl.deploy.flower import client_app, packets, server_app, transport

SITES = ("clinic-a", "clinic-b")
NGINX = shutil.which("nginx") or Path("/usr/sbin/nginx").exists()


@pytest.fixture(scope="module")
def net(tmp_path_factory):
    """A SuperLink and two nodes; the second one behind nginx, if it is installed."""
    if os.environ.get("SEMIFL_DEPLOY") != "full":
        pytest.skip("part of make test-deploy")
    folder = tmp_path_factory.mktemp("flower")
    net = Net(folder, make_federation(folder / "pictures", SITES))
    try:
        net.start_link()
        net.proxy = net.start_proxy() if NGINX else None
        for site, port in zip(SITES, (None, net.proxy), strict=True):
            net.register(site)
            net.start_node(site, port)
        yield net
    finally:
        net.close()


def lines(path):
    records = [json.loads(line) for line in (path / "rounds.jsonl").read_text().splitlines()]
    for record in records:
        for key in ("seconds", "client_loss", "agreement", "terms"):  # a site tells losses with three digits
            del record[key]
    return records


def assert_same_bits(remote, table, net, tmp_path, monkeypatch):
    """The run's records and model are those of a simulation with the same pictures."""
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "cache"))
    start(decode({**table, "data": {**table["data"], "name": "folder", "root": str(net.data)}}), tmp_path / "local")
    assert lines(remote) == lines(tmp_path / "local")
    models = [load_file(folder / "model.safetensors") for folder in (remote, tmp_path / "local")]
    assert digest(models[0]) == digest(models[1])


def test_flower_gives_the_bits_of_a_simulation(net, tmp_path, monkeypatch):
    table = run_table(rounds=2)
    (tmp_path / "run.toml").write_text(toml.dumps(table))
    said = net.run("first", SITES, tmp_path / "run.toml", 180)
    assert "round 2: accuracy" in said, said + net.logs()
    assert_same_bits(net.folder / "runs" / "first", table, net, tmp_path, monkeypatch)


@pytest.mark.skipif(not NGINX, reason="nginx is not installed, so the published proxy rule cannot be tried")
def test_the_proxy_lets_nodes_through_and_nobody_else(net):
    assert net.status(net.port, "/v1/control/list-runs") == 200  # why there must be a proxy
    for path in (
        "/v1/control/list-runs",
        "/v1/control/start-run",
        "/v1/fleet/../control/start-run",
        "/v1/fleet/..%2Fcontrol/start-run",
        "/v1/fleet/%2e%2e/control/start-run",
        "//v1/control/start-run",
        "/v1/runtime/acquire-task",
        "/",
    ):
        assert net.status(net.proxy, path) == 403, path
    assert net.status(net.proxy, "/v1/fleet/pull-messages") == net.status(net.port, "/v1/fleet/pull-messages") != 403


def test_a_run_goes_on_after_its_superlink_was_killed(net, tmp_path, monkeypatch):
    table, remote = {**run_table(rounds=2), "seed": 1}, net.folder / "runs" / "second"
    (tmp_path / "run.toml").write_text(toml.dumps(table))
    net.start("flwr-run", net.run_command("second", SITES, tmp_path / "run.toml"))
    net.wait(lambda: (remote / "rounds.jsonl").exists() and lines(remote), "a first round", 120)
    family = descendants(net.link.pid)
    net.link.kill()
    net.link.wait(10)
    try:
        net.wait(lambda: not any(kin.lives() for kin in family), "the hub's app to end with its SuperLink", 40)
    finally:
        for kin in family:
            kin.kill()
    net.start_link()
    said = net.run("second", SITES, tmp_path / "run.toml", 180)
    assert "round 1:" not in said
    assert_same_bits(remote, table, net, tmp_path, monkeypatch)


class Replies:
    """A grid without a SuperLink, for what a real one shows only after minutes; Flower cannot make messages outside
    a run, so that what is sent is left out."""

    def __init__(self, names, replies):
        self.names, self.replies = names, replies

    def get_nodes(self):
        return [SimpleNamespace(name=name, node_id=number) for number, name in enumerate(self.names)]

    def pull_messages(self, numbers):
        (number,) = numbers
        return self.replies[number]()


class UnsentPost(transport.FlowerTransport):
    def _send(self, packets, seconds):
        return {site: site for site in packets if site in self.nodes()}


class StuckPost(transport.FlowerTransport):
    def _send(self, packets, seconds):
        time.sleep(5)


def reply(number, content=None, code=None):
    metadata = SimpleNamespace(reply_to_message_id=number)
    return SimpleNamespace(
        metadata=metadata, content=content, has_error=lambda: code is not None, error=SimpleNamespace(code=code)
    )


def test_the_deadline_holds_even_if_flower_hangs():
    hang = threading.Event()
    replies = {
        "slow": lambda: [],
        "stuck": hang.wait,
        "lost": lambda: [reply("lost", code=5)],
        "other": lambda: [reply("other", packets.wrap(b"hello", "another"))],
        "empty": lambda: [reply("empty", packets.RecordDict())],
        "good": lambda: [reply("good", packets.wrap(b"hello", "good"))],
    }
    began = time.monotonic()
    answers = {
        each.site: each
        for each in UnsentPost(Replies([*replies, ""], replies)).exchange(
            dict.fromkeys([*replies, "away"], b""), 1.5, 100
        )
    }
    hang.set()
    assert time.monotonic() - began < 3
    assert answers.keys() == {*replies, "away"}
    assert answers["good"].data == b"hello"
    assert {site for site, answer in answers.items() if answer.data is None} == answers.keys() - {"good"}
    assert answers["away"].reason == transport.NOT_CONNECTED
    assert answers["stuck"].reason == answers["slow"].reason == "no answer within 1.5 seconds"
    assert "lost" in answers["lost"].reason
    assert "calls itself another" in answers["other"].reason
    assert [each.reason for each in StuckPost(None).exchange({"a": b""}, 0.5, 100)] == [transport.NO_LINK]


def test_two_nodes_with_one_name_are_refused():
    with pytest.raises(UserError, match="two nodes are registered as clinic-a"):
        transport.FlowerTransport(Replies(["clinic-a", "clinic-a"], {})).nodes()


@pytest.mark.parametrize(
    "config",
    [
        {"site": "clinic-b", "data": "/nowhere", "folder": "memory"},
        {"site": "clinic-a", "data": "/nowhere"},
        {"site": "clinic-a", "data": "/nowhere", "folder": "memory", "policy": "/nowhere/policy.toml"},
        {"site": "clinic-a", "data": "/nowhere", "folder": "memory", "partition-id": 0},
    ],
    ids=["another site's packet", "a key is missing", "no policy", "an unknown key"],
)
def test_what_is_wrong_at_a_node_stays_in_its_log(config, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    answer = wire.unpack(client_app._reply(b"", "clinic-a", config, time.time() + 60), {})
    assert answer.kind == "failed"
    assert "nowhere" not in answer.facts["reason"]
    assert caplog.text


def test_the_example_is_valid():
    settings, table = read_settings(read(APP / "conf" / "run.toml"))
    assert hub_config(table, Hub(Path("pictures"), Path("runs"), SITES)).run.rounds == 100
    assert settings.deadline == 600
    keys = tomllib.loads((APP / "pyproject.toml").read_text())["tool"]["flwr"]["app"]["config"]
    assert keys.keys() == {"name", "sites", "config", "hub-data", "runs", "patience"}
    assert published_rule() in (APP.parents[1] / "docs" / "flower.md").read_text(encoding="utf-8")
    with pytest.raises(UserError, match="has no 'sites'"):
        server_app.make_hub(keys)

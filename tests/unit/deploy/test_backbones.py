"""Sites bring the backbone, the hub sends only what trains, and a site with another backbone says so."""

import copy
import json

import pytest

import backbones
from by_hand import transport_to
from federated_pictures import SITES, make_federation, run_table
from semifl.deploy.hub import Hub, Sites, run_federation
from semifl.deploy.order import accept
from semifl.deploy.policy import Limits, Policy
from semifl.deploy.remote import Answer
from semifl.deploy.settings import Settings
from semifl.deploy.wire import facts_of
from semifl.errors import UserError
from semifl.learning.network import Network
from semifl.models.pretrained import Pretrained
from semifl.records.directory import RunDirectory
from semifl.running.context import Silent


@pytest.fixture
def backbone(tmp_path, monkeypatch):
    """Hub and sites share one machine here, and so one folder of backbones."""
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "data"))
    return backbones.lite(tmp_path / "data/backbones/lite")


def table(rounds=2, **model):
    made = run_table(rounds, mix_weight=0.0, threshold=0.0)
    made["data"] = {}  # the backbone says how large pictures are
    made["model"] = {"name": "pretrained", "source": "lite", "size": 32, **model}
    return made


def played(tmp_path, name, run, policy=None):
    pictures = make_federation(tmp_path / "pictures")
    transport = transport_to(pictures, tmp_path, policy or Policy(), trains_apart=False)
    try:
        return run_federation(Hub(pictures, tmp_path / "runs", SITES), name, run, transport, Silent()), transport
    finally:
        transport.close()


def order_of(tmp_path, backbone, **model):
    _, transport = played(tmp_path, "order", table(1, **model))
    return copy.deepcopy(facts_of(transport.packets[0][1])["order"])


def test_only_what_trains_travels(tmp_path, backbone):
    result, transport = played(tmp_path, "run", table())
    assert result["rounds"] == 2
    numbers = 1280 * 3 + 3  # of the head
    assert result["bytes_up"] == 4 * numbers * len(SITES) * 2
    largest = max(len(sent) for _, sent, _ in transport.packets)
    whole = sum(p.numel() for p in Pretrained(source=str(backbone)).build(3, 8, 3).parameters())
    assert largest < 4 * whole / 100


def kept_features(tmp_path):
    return list((tmp_path / "memory").glob("*/runs/*/features/*/*.safetensors"))


def test_sites_keep_their_features_until_the_hub_says_goodbye(tmp_path, backbone, monkeypatch):
    told, part = [], Sites.part
    monkeypatch.setattr(Sites, "part", lambda sites: told.append(len(kept_features(tmp_path))) or part(sites))
    result, _ = played(tmp_path, "first", table(views=2))
    assert result["rounds"] == 2
    assert told == [len(SITES)]
    assert kept_features(tmp_path) == []


def test_features_of_a_run_that_never_ended_make_room_for_another(tmp_path, backbone, monkeypatch):
    monkeypatch.setattr(Sites, "part", lambda sites: None)
    for name in ("first", "second"):
        played(tmp_path, name, table(views=2))
        assert {path.parents[2].name.split(".")[0] for path in kept_features(tmp_path)} == {name}


def test_a_site_that_misses_the_goodbye_is_named_and_one_that_refused_is_not_asked(tmp_path):
    asked = []

    class Deaf:
        def exchange(self, packets, seconds, largest):
            asked.extend(packets)
            return iter([Answer(site, None, "it is not connected", 0.0) for site in packets])

    (tmp_path / "run").mkdir()
    sites = Sites(Deaf(), {"sites": list(SITES)}, Settings(), RunDirectory(tmp_path / "run"), None, {})
    sites.refused[SITES[0]] = "no"
    sites.part()
    assert asked == list(SITES[1:])
    events = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    assert [(each["event"], each["site"]) for each in events] == [("site keeps features", site) for site in SITES[1:]]


def test_a_site_has_the_last_word_about_its_disk(tmp_path, backbone):
    policy = Policy(limits=Limits(largest_features=1e-6))
    with pytest.raises(
        UserError, match=r"more than the 1e-06 GB of disk .* \(limits\.largest_features\): lower model\.views$"
    ):
        played(tmp_path, "run", table(views=2), policy)


def test_an_order_names_the_backbone_and_no_path(tmp_path, backbone, monkeypatch):
    order = order_of(tmp_path, backbone)
    assert order["config"]["model"]["source"] == "lite"
    assert str(tmp_path) not in str(order)
    assert accept(order, SITES[0], Policy()).facts.backbone == order["facts"]["backbone"]
    for source in ("../lite", "/etc", str(backbone), "a/b/c", 3):
        order["config"]["model"]["source"] = source
        with pytest.raises(UserError, match=r"may not contain model\.source"):
            accept(order, SITES[0], Policy())


def test_a_site_with_another_backbone_or_none_refuses_with_a_sentence(tmp_path, backbone, monkeypatch):
    order = order_of(tmp_path, backbone)
    backbones.lite(tmp_path / "elsewhere/backbones/lite", seed=1)
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "elsewhere"))
    with pytest.raises(UserError, match="clinic-a holds another backbone 'lite' than the hub"):
        accept(order, SITES[0], Policy())
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match="clinic-a does not hold the backbone 'lite'") as told:
        accept(order, SITES[0], Policy())
    assert str(tmp_path) not in str(told.value)


@pytest.mark.parametrize("hash", [None, 3, "x", "0" * 73])
def test_an_order_without_a_proper_hash_is_refused(tmp_path, backbone, hash):
    order = order_of(tmp_path, backbone)
    order["facts"]["backbone"] = hash
    with pytest.raises(UserError, match="backbone"):
        accept(order, SITES[0], Policy())


def test_hub_and_site_build_the_same_network(tmp_path, backbone):
    accepted = accept(order_of(tmp_path, backbone, train="norms"), SITES[1], Policy())
    names = set(Network(accepted.build()).weights())
    assert names == set(Network(Pretrained(source="lite", train="norms", size=32).build(3, 32, 3)).weights())

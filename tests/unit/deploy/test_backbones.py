"""Sites bring the backbone, the hub sends only what trains, and a site with another backbone says so."""

import copy

import pytest

import backbones
from by_hand import transport_to
from federated_pictures import SITES, make_federation, run_table
from semifl.deploy.hub import Hub, run_federation
from semifl.deploy.order import accept
from semifl.deploy.policy import Limits, Policy
from semifl.deploy.wire import facts_of
from semifl.errors import UserError
from semifl.learning.network import Network
from semifl.models.pretrained import Pretrained
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


def test_sites_keep_their_features_while_the_run_lasts_and_others_make_room(tmp_path, backbone):
    result, transport = played(tmp_path, "first", table(views=2))
    kept = list((tmp_path / "memory").glob("*/runs/*/features/*/*.safetensors"))
    assert len(kept) == len(SITES)
    assert result["rounds"] == 2
    _, again = played(tmp_path, "second", table(views=2))
    runs = {path.parents[2].name for path in (tmp_path / "memory").glob("*/runs/*/features/*/*.safetensors")}
    assert {run.split(".")[0] for run in runs} == {"second"}
    for site in (*transport.sites.values(), *again.sites.values()):
        site.forget_features()
    assert list((tmp_path / "memory").glob("*/runs/*/features")) == []


def test_a_site_has_the_last_word_about_its_disk(tmp_path, backbone):
    policy = Policy(limits=Limits(largest_features=1e-6))
    with pytest.raises(UserError, match=r"GB of disk, and limits\.largest_features of this site allows 1e-06"):
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

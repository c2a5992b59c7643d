"""What a site keeps for itself: whose pictures a run began with, and files that no run's name can meet."""

import hashlib
import json
import logging
import os
from types import SimpleNamespace

import pytest
import torch

from by_hand import transport_to
from federated_pictures import SITES, make_federation, paint, run_table
from semifl.configuration.build import build_world
from semifl.data.dataset import Facts
from semifl.data.datasets import folder
from semifl.data.datasets.folder import Folder
from semifl.deploy import wire
from semifl.deploy.hub import Hub, hub_config, run_federation
from semifl.deploy.keeping import Keeping
from semifl.deploy.leash import in_time
from semifl.deploy.order import refuse_memory, refuse_work, write_order
from semifl.deploy.pictures import OTHER_PICTURES, compare_with_before, read_site
from semifl.deploy.policy import Limits, Policy, Privacy, Share
from semifl.deploy.privacy import Ledger
from semifl.deploy.site import Site
from semifl.errors import UserError
from semifl.learning.weights import Snapshot
from semifl.methods.fedrgd import FedRGD
from semifl.methods.semifl import SemiFL
from semifl.running.context import Silent


def test_a_site_with_other_pictures_is_told_to_its_owner_and_to_nobody_else(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "cache"))
    pictures = make_federation(tmp_path / "pictures")
    hub = Hub(pictures, tmp_path / "runs", SITES)

    def played(rounds):
        transport = transport_to(pictures, tmp_path, Policy(), trains_apart=False)
        with caplog.at_level(logging.WARNING):
            caplog.clear()
            run_federation(hub, f"run-{rounds}", run_table(rounds), transport, Silent())
        transport.close()
        return transport.packets, [each for each in caplog.messages if OTHER_PICTURES in each]

    assert played(1)[1] == []
    assert played(1)[1] == []  # the hub has finished: nobody is asked
    (tmp_path / "runs" / "run-1" / "result.json").unlink()
    packets, told = played(1)  # asked again, with the same pictures
    assert packets
    assert told == []
    paint(pictures / "clients" / SITES[1], (0, 0, 0), 2, 999)
    (tmp_path / "runs" / "run-1" / "result.json").unlink()
    packets, told = played(1)
    assert told == [f"{OTHER_PICTURES}: 18 when this run was last here, 20 now"]
    assert not any(b"18 when" in answer or OTHER_PICTURES.encode() in answer for _, _, answer in packets)


def test_pictures_are_kept_as_the_last_order_wants_them_and_no_other(tmp_path, monkeypatch):
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "cache"))
    pictures = make_federation(tmp_path / "pictures")
    (tmp_path / "cache/folder").mkdir(parents=True)
    (tmp_path / "cache/folder/of-somebody-else.safetensors").write_text("x")
    kept = set()
    for size in (16, 12, 20):
        read_site(pictures / "clients" / SITES[0], None, facts(size), tmp_path / "site/decoded.json")
        now = {path.name for path in (tmp_path / "cache/folder").glob("*.safetensors")}
        assert len(now) == 2
        assert "of-somebody-else.safetensors" in now
        assert now & kept <= {"of-somebody-else.safetensors"}
        kept |= now
    monkeypatch.setattr(Folder, "_decode_files", lambda *_: pytest.fail("decoded again"))
    read_site(pictures / "clients" / SITES[0], None, facts(20), tmp_path / "site/decoded.json")


def test_the_fingerprint_of_pictures_is_that_of_all_their_bytes(tmp_path):
    images = torch.randint(0, 256, (600, 3, 4, 4), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    assert compare_with_before(images, tmp_path) == ""
    noted = json.loads((tmp_path / "pictures.json").read_text())
    assert noted == {"pictures": 600, "sha256": hashlib.sha256(images.numpy().tobytes()).hexdigest()}


def facts(size):
    return Facts(("a", "b"), (0.5,) * 3, (0.2,) * 3, True, 3, size)


def test_reading_pictures_ends_when_the_time_of_a_request_is_over(tmp_path, monkeypatch):
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "cache"))
    pictures = make_federation(tmp_path / "pictures")
    clock = iter([0.0, 121.0])  # seconds
    monkeypatch.setattr("semifl.deploy.leash.time", SimpleNamespace(monotonic=lambda: next(clock)))
    decoding = in_time(Limits(most_minutes=2.0))
    with pytest.raises(UserError, match=r"more time than the 2 minutes .* \(limits.most_minutes\)"):
        read_site(pictures / "clients" / SITES[0], None, facts(16), tmp_path / "decoded.json", decoding)


def test_what_old_runs_left_makes_room_for_new_ones(tmp_path, caplog):
    keeping = Keeping(tmp_path / "runs", Policy(limits=Limits(largest_memory=2500e-9)))
    for age, name in enumerate(("newest", "second", "now", "third", "oldest")):
        file = tmp_path / "runs" / name / "0" / "1.safetensors"
        file.parent.mkdir(parents=True)
        file.write_bytes(bytes(1000))
        for path in (file, file.parent):
            os.utime(path, (10_000 - age, 10_000 - age))
    with caplog.at_level(logging.WARNING):
        keeping.make_room("now")
    # Four others have 4,000 bytes, and 2,500 are allowed: two must go.
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == ["newest", "now", "second"]
    assert [message.split()[2].strip(",") for message in caplog.messages] == ["oldest", "third"]


def test_whoever_adds_noise_later_hears_of_updates_that_left_without(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "cache"))
    pictures = make_federation(tmp_path / "pictures")
    for name, policy in (("bare", Policy()), ("noisy", Policy(privacy=Privacy(clip=0.05, noise=1.0)))):
        transport = transport_to(pictures, tmp_path, policy, trains_apart=False)
        with caplog.at_level(logging.WARNING):
            caplog.clear()
            run_federation(Hub(pictures, tmp_path / "runs", SITES), name, run_table(2), transport, Silent())
        transport.close()
    assert [each for each in caplog.messages if "without noise" in each] == [
        "2 updates left this site without noise before: ε says nothing of what those told"
    ] * len(SITES)
    assert Ledger(tmp_path / "memory" / SITES[0] / "privacy.json")._releases() == {0.0: 2, 1.0: 2}


def test_a_run_named_like_a_file_of_the_site_harms_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "cache"))
    pictures = make_federation(tmp_path / "pictures")
    policy = Policy(privacy=Privacy(clip=0.05, noise=1.0))
    for name in ("privacy.json", "runs", "startup"):
        transport = transport_to(pictures, tmp_path, policy, trains_apart=False)
        run_federation(Hub(pictures, tmp_path / "runs", SITES), name, run_table(1), transport, Silent())
        transport.close()
    ledger = tmp_path / "memory" / SITES[0] / "privacy.json"
    assert ledger.is_file()
    assert Ledger(ledger)._releases() == {1.0: 3}


def said(check, *arguments):
    try:
        check(*arguments)
    except UserError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("limits", [Limits(most_steps=95), Limits(most_epochs=50)])
def test_neither_a_refusal_nor_its_sentence_tells_pictures_that_lie_in_one_step(limits):
    """18 to 22 pictures leave as 20: five epochs of single pictures are 90 to 110 steps, 1,000 steps 45 to 56."""
    for policy in (Policy(limits=limits), Policy(Share(counts=False), limits)):
        for method in (SemiFL(client_batch=1, client_epochs=5), FedRGD(client_batch=1, iterations=1000)):
            answers = {said(refuse_work, method, count, policy) for count in range(18, 23)}
            assert len(answers) == 1
            assert not any(str(count) in answer.replace("95", "") for answer in answers for count in range(18, 23))


def test_a_refusal_for_memory_does_not_tell_pictures_that_lie_in_one_step():
    """Of 10⁶ bytes each; the hub chooses the parameters, so that they and 18 pictures are just below the limit."""
    facts, policy = Facts(("a", "b"), (0.5,), (0.2,), True, 1, 1000), Policy(limits=Limits(most_gigabytes=1.0))
    for free in range(15, 26):
        parameters = (1000 - free) * 10**6 // 16
        assert len({said(refuse_memory, parameters, facts, count, policy) for count in range(18, 23)}) == 1
    assert said(refuse_memory, 62_000_000, facts, 20, policy)
    assert not said(refuse_memory, 61_000_000, facts, 20, policy)


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """Asks a new site with some pictures, under a policy, to follow an order: its answers to hello and to a task."""
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "cache"))
    pictures = make_federation(tmp_path / "pictures")
    (tmp_path / "data").mkdir()

    def ask(policy, count, method, change=lambda weights: weights):
        data = tmp_path / "data" / str(count)
        if not data.exists():
            paint(data, (40, 40, 220), count, 1)
        table = run_table(1, **method)
        world = build_world(hub_config(table, Hub(pictures, tmp_path / "runs", SITES)))
        network = world.place(None, "cpu").network
        order = write_order(world, "run.00000000", SITES)
        memory = tmp_path / f"memory-{len(list(tmp_path.iterdir()))}"
        site = Site(SITES[0], data, None, policy, memory, trains_apart=False)
        facts = {"order": order, "round": 1, "progress": 0.0, "precision": "fp32", "largest_update": 0.0}
        stats = network.statistics([world.data.images[:6].float() / 255])
        body = (Snapshot(change(network.weights()), stats), None)
        packets = [wire.pack("hello", {"order": order}), wire.pack("task", facts, body)]
        return [wire.unpack(site.answer(packet), {}) for packet in packets], Ledger(memory / "privacy.json")

    return ask


NOISY = Policy(limits=Limits(most_steps=30), privacy=Privacy(clip=0.05, noise=1.0))


def test_with_noise_too_many_pictures_for_an_order_are_nobodys_business(asked, caplog):
    """Two epochs of single pictures are 36 steps for 18 of them and 24 for 12: noise leaves in both cases."""
    method = {"name": "semifl", "client_batch": 1, "client_epochs": 2}
    seen = []
    for count in (18, 12):
        (hello, reply), ledger = asked(NOISY, count, method)
        shapes = {name: (tensor.shape, tensor.dtype) for name, tensor in reply.body.items()}
        seen.append((hello.kind, hello.facts, reply.kind, reply.facts, shapes, ledger._releases()))
    assert seen[0] == seen[1]
    assert seen[0][0::2][:2] == ("hello", "reply")
    assert seen[0][5] == {1.0: 1}
    assert sum("sends noise alone" in message for message in caplog.messages) == 1  # the owner is told
    # What is too much for any site is told to the hub, with noise or not.
    (hello, _), ledger = asked(NOISY, 12, {**method, "client_epochs": 101})
    assert hello.kind == "refused"
    assert "limits.most_epochs" in hello.facts["reason"]
    assert ledger._releases() == {}


def test_what_is_wrong_with_a_sites_own_pictures_is_told_without_their_number(asked, monkeypatch, caplog):
    """The hub's 18 pictures of 192 bytes fit into the memory of this machine, and the site's 37 do not."""
    monkeypatch.setattr(folder, "machine", SimpleNamespace(memory=lambda: 5000))
    (hello, _), _ = asked(Policy(), 37, {})
    assert (hello.kind, hello.facts["reason"]) == (
        *("refused", "clinic-a has a problem with its own pictures or files; its own log says which"),
    )
    assert any("37 pictures" in message for message in caplog.messages)


@pytest.mark.parametrize(
    "change",
    [
        lambda weights: {name: tensor.half() for name, tensor in weights.items()},
        lambda weights: {name: tensor.double() for name, tensor in weights.items()},
        lambda weights: {**weights, "more": torch.zeros(1)},
        lambda weights: dict(list(weights.items())[1:]),
        lambda weights: {name: tensor[None] for name, tensor in weights.items()},
        lambda weights: {**weights, "more": 3},
    ],
)
def test_weights_of_another_kind_are_refused_before_anybody_could_tell_who_trains(asked, change):
    """A site that is sure of nothing would answer in the hub's type, one that trains in its own, or fail."""
    policy = Policy(privacy=Privacy(clip=0.05, noise=1.0))
    told = []
    for threshold in (1.0, 0.0):
        (_, reply), ledger = asked(policy, 12, {"name": "semifl", "threshold": threshold}, change)
        assert ledger._releases() == {}
        told.append((reply.kind, reply.facts["reason"]))
    assert told[0] == told[1]
    assert told[0][0] == "refused"

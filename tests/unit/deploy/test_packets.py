"""What leaves a site: every packet of a run is read, byte by byte and word by word."""

import contextlib
import json

import numpy as np
import pytest
import torch
from PIL import Image

from by_hand import transport_to
from federated_pictures import SITES, make_federation, paint, run_table
from semifl.deploy import leaving, wire
from semifl.deploy.hub import Hub, run_federation
from semifl.deploy.policy import Limits, Policy, Privacy, Share
from semifl.errors import UserError
from semifl.federation.world import Reply, Update
from semifl.learning.batchnorm import Moments
from semifl.learning.weights import Snapshot
from semifl.running.context import Silent

NOTHING = Share(counts=False, training=False, confidence=False)
EVERYTHING = Share(class_histogram=True, statistics=True, accuracy=True)


@pytest.fixture
def pictures(tmp_path, monkeypatch):
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "cache"))
    return make_federation(tmp_path / "pictures")


@pytest.fixture
def ran(pictures, tmp_path):
    """Makes a run under a policy; every packet that a site wrote, and the run's records."""
    transports = []

    def run_it(policy, labels=None, rounds=2, **method):
        transport = transport_to(pictures, tmp_path, policy, labels)
        transports.append(transport)
        name = "run" if len(transports) == 1 else f"run-{len(transports)}"
        run_federation(Hub(pictures, tmp_path / "runs", SITES), name, run_table(rounds, **method), transport, Silent())
        records = [json.loads(line) for line in (tmp_path / "runs" / name / "rounds.jsonl").read_text().splitlines()]
        return [answer for _, _, answer in transport.packets], records

    yield run_it
    for transport in transports:
        transport.close()


def read(data):
    return wire.unpack(data, {"Moments": Moments})


def words(value):
    """Every key and every string anywhere in JSON."""
    if isinstance(value, dict):
        return {word for key, inner in value.items() for word in {key} | words(inner)}
    if isinstance(value, list):
        return {word for inner in value for word in words(inner)}
    return {value} if isinstance(value, str) else set()


def test_no_picture_no_label_no_path_ever_leaves(ran, pictures, tmp_path):
    answers, _ = ran(Policy(share=EVERYTHING), labels=pictures / "test", statistics="all")
    raw = [np.asarray(Image.open(path)).tobytes() for path in sorted((pictures / "clients").rglob("*.png"))]
    files = [path.read_bytes()[100:160] for path in sorted((pictures / "clients").rglob("*.png"))]
    kinds = set()
    for data in answers:
        packet = read(data)
        kinds.add(packet.kind)
        assert not any(picture in data for picture in raw + files)
        assert not words(packet.facts) & {"blue", "green", "red"}
        for secret in (str(tmp_path), "clients", ".png", "/"):
            assert not any(secret in word for word in words(packet.facts)), (secret, packet.facts)
    assert kinds == {"hello", "reply", "statistics"}


def test_only_what_is_written_down_leaves(ran, pictures):
    answers, _ = ran(Policy(share=EVERYTHING), labels=pictures / "test", statistics="all")
    model = None
    for packet in map(read, answers):
        if packet.kind == "hello":
            assert packet.facts.keys() == {"semifl", "torch", "pictures"}
            assert packet.body is None
        elif packet.kind == "statistics":
            assert packet.facts == {}
            assert all(isinstance(moments, Moments) for moments in packet.body.values())
        else:
            assert packet.facts.keys() == {"outcome", "signals", "examples", "terms"}
            assert packet.facts["signals"].keys() == {
                "images", "confident", "confidence", "predicted", "classes", "confidence_bins", "lr", "own_right",
                "own_total",
            }  # fmt: skip
            assert packet.facts["terms"].keys() <= {"loss", "fix", "mix", "agreement"}
            shapes = {name: tensor.shape for name, tensor in packet.body.items()}
            model = model or shapes
            assert shapes == model  # weights of one model, and nothing that grows with the pictures
            assert packet.facts["signals"]["own_total"] == 10  # of 3 classes × 4 pictures, to the nearest five
            assert packet.facts["signals"]["own_right"] in (0, 5, 10)


def test_a_policy_that_shares_nothing_sends_weights_and_their_examples(ran):
    answers, records = ran(Policy(share=NOTHING))
    for packet in map(read, answers):
        if packet.kind == "hello":
            assert packet.facts.keys() == {"semifl", "torch"}
        else:
            assert packet.facts.keys() == {"outcome", "signals", "examples"}
            assert packet.facts["signals"] == {}
    assert [record["class_histogram"] for record in records] == [[], []]
    assert [record["label_ratio"] for record in records] == [None, None]


def test_a_site_below_its_minimum_abstains(ran):
    answers, records = ran(Policy(limits=Limits(minimum_examples=19)))  # a site has 18 pictures
    replies = [packet for packet in map(read, answers) if packet.kind == "reply"]
    assert {packet.facts["outcome"] for packet in replies} == {"abstained"}
    assert all(packet.body is None and "examples" not in packet.facts for packet in replies)
    assert [record["abstained"] for record in records] == [[0, 1, 2], [0, 1, 2]]
    assert all(packet.facts["signals"] == {} for packet in replies)  # 18 pictures are too few for any figure


def test_no_figure_is_about_a_single_picture(ran, pictures):
    """Sites have 18 pictures, of which the first models are sure of any number: only multiples of five leave."""
    answers, _ = ran(Policy(share=EVERYTHING), labels=pictures / "test", rounds=4, threshold=0.55)
    seen = set()
    for packet in map(read, answers):
        if packet.kind == "hello":
            assert packet.facts["pictures"] == 20
        else:
            signals = packet.facts["signals"]
            assert packet.facts.get("examples", 5) in (1, 5, 10, 15, 20)
            single = [signals[name] for name in ("images", "confident", "confidence", "own_right", "own_total")]
            for count in (*single, *signals["confidence_bins"], *signals["classes"], *signals["predicted"]):
                assert count % 5 == 0
                seen.add(count)
    assert {0, 5, 20} <= seen


def test_with_noise_no_exact_count_leaves_and_the_price_is_told(ran, tmp_path):
    policy = Policy(privacy=Privacy(clip=0.5, noise=2.0))
    answers, _ = ran(policy)
    replies = [packet for packet in map(read, answers) if packet.kind == "reply"]
    assert replies
    assert all("pictures" not in read(answer).facts for answer in answers)
    for packet in replies:
        assert packet.facts.keys() == {"outcome", "signals", "examples", "spent"}
        assert (packet.facts["signals"], packet.facts["examples"]) == ({}, 1)
    spent = [packet.facts["spent"]["epsilon"] for packet in replies]
    assert max(spent) > min(spent) > 0
    events = (tmp_path / "runs" / "run" / "events.jsonl").read_text()
    assert events.count("privacy spent") == len(replies)


def test_with_noise_a_site_never_tells_that_it_was_unsure(ran, tmp_path):
    """Threshold 1: nobody is sure of anything. Without noise that is an abstention; with it, noise alone goes out."""
    answers, records = ran(Policy(privacy=Privacy(clip=0.5, noise=2.0)), threshold=1.0)
    replies = [packet for packet in map(read, answers) if packet.kind == "reply"]
    assert {packet.facts["outcome"] for packet in replies} == {"trained"}
    assert all(packet.facts["spent"]["epsilon"] > 0 for packet in replies)
    assert [record["abstained"] for record in records] == [[], []]
    _, plain = ran(Policy(), threshold=1.0, name="semifl", lr=0.02)
    assert [record["abstained"] for record in plain] == [[0, 1, 2], [0, 1, 2]]


def test_a_site_whose_privacy_is_spent_abstains(ran):
    # One update with noise 2 costs ε ≈ 2.2 at δ = 1e-5, two cost more than 3.
    policy = Policy(privacy=Privacy(clip=0.5, noise=2.0, largest_epsilon=2.8))
    _, records = ran(policy, rounds=3)
    assert [record["abstained"] for record in records] == [[], [0, 1, 2], [0, 1, 2]]


@pytest.mark.parametrize(
    "policy",
    [Policy(), Policy(share=Share(statistics=True), privacy=Privacy(clip=1.0, noise=1.0))],
    ids=["not shared", "shared, but with noise"],
)
def test_statistics_stay_whatever_the_order_says(pictures, tmp_path, policy):
    """An order that does not need them is followed; a packet that asks for them all the same is refused."""
    transport = transport_to(pictures, tmp_path, policy)
    try:
        run_federation(Hub(pictures, tmp_path / "runs", SITES), "run", run_table(rounds=1), transport, Silent())
        site, task, _ = next(each for each in transport.packets if read_task(each[1]).kind == "task")
        packet = read_task(task)
        asked = wire.pack("statistics", {"order": packet.facts["order"]}, packet.body[0].weights)
        answer = read(transport.sites[site].answer(asked))
        assert (answer.kind, answer.body) == ("refused", None)
        assert "policy keeps" in answer.facts["reason"]
    finally:
        transport.close()


def test_statistics_are_of_enough_pictures_and_of_a_round_number_of_them():
    def told(**limits):
        policy = Policy(share=EVERYTHING, limits=Limits(**limits))
        answer = read(leaving.statistics({"norm": Moments(18 * 64, torch.zeros(2), torch.ones(2))}, policy, 18))
        return {name: moments.number for name, moments in answer.body.items()}

    assert told() == {"norm": 20 * 64}  # 18 pictures of 64 values, to the nearest five
    assert told(smallest_count=1) == {"norm": 18 * 64}
    assert told(minimum_examples=19) == {}
    assert told(smallest_count=50) == {}  # nearest to none at all


def read_task(data):
    return wire.unpack(data, {"Moments": Moments, "Snapshot": Snapshot})


def test_noise_that_would_drown_the_model_costs_nothing(ran, tmp_path):
    # The network has some thousand weights: noise of 100 × 5 on each is far beyond ten times its norm.
    _, records = ran(Policy(privacy=Privacy(clip=5.0, noise=100.0)))
    assert [record["abstained"] for record in records] == [[0, 1, 2], [0, 1, 2]]
    assert not list((tmp_path / "memory").rglob("privacy.json"))


def test_accuracy_on_own_labels_is_recorded_as_one_number(ran, pictures):
    policy = Policy(EVERYTHING, Limits(smallest_count=1))
    answers, records = ran(policy, labels=pictures / "test", name="semifl")
    signals = [packet.facts["signals"] for packet in map(read, answers) if packet.kind == "reply"]
    first = signals[:3]  # the first round's three sites, with 12 labels each
    assert records[0]["site_accuracy"] == pytest.approx(100 * sum(each["own_right"] for each in first) / 36)
    # Their own labels are copies of the hub's test pictures here, and the model that is sent is the one that is tested.
    assert records[0]["site_accuracy"] == pytest.approx(records[0]["accuracy"])


def test_accuracy_on_own_labels_needs_no_count_of_other_pictures(ran, pictures):
    share = Share(counts=False, accuracy=True)
    answers, records = ran(Policy(share, Limits(smallest_count=1)), labels=pictures / "test")
    signals = [packet.facts["signals"] for packet in map(read, answers) if packet.kind == "reply"][:3]
    assert all("images" not in each for each in signals)
    assert records[0]["site_accuracy"] == pytest.approx(100 * sum(each["own_right"] for each in signals) / 36)


def test_own_labels_are_not_counted_class_by_class(ran, pictures):
    """A hub that knows only some of the classes would learn how many pictures the others have."""
    paint(pictures / "labels" / "blue", (40, 40, 220), 6, 1)
    paint(pictures / "labels" / "yellow", (220, 220, 40), 6, 2)  # is no class of the run
    answers, records = ran(Policy(share=EVERYTHING), labels=pictures / "labels")
    assert all("own_total" not in read(answer).facts.get("signals", {}) for answer in answers)
    assert "site_accuracy" not in records[0]


def test_a_damaged_memory_is_told_without_its_path(ran, pictures, tmp_path):
    transport = transport_to(pictures, tmp_path, Policy())
    try:
        run_federation(Hub(pictures, tmp_path / "runs", SITES), "run", run_table(rounds=1), transport, Silent())
        site, task, _ = next(each for each in transport.packets if read_task(each[1]).kind == "task")
        for path in (tmp_path / "memory" / site).rglob("*.safetensors"):
            path.write_bytes(b"damaged")
        packet = read_task(task)
        later = wire.pack("task", {**packet.facts, "round": 2}, packet.body)
        assert read(transport.sites[site].answer(later)).facts == {"reason": "its training raised UserError"}
    finally:
        transport.close()


def test_a_failure_tells_its_kind_alone(pictures, tmp_path):
    transport = transport_to(pictures, tmp_path, Policy())
    site = transport.sites["clinic-a"]
    site.data = tmp_path / "secret place"
    old_packet = wire.pack("hello", {"order": {"semifl": "?"}})
    assert "install the same version" in read(site.answer(old_packet)).facts["reason"]
    with pytest.raises(Exception, match="own log says"):
        run_federation(Hub(pictures, tmp_path / "runs", SITES[:1]), "run", run_table(), transport, Silent())
    assert all("secret" not in json.dumps(read(answer).facts) for _, _, answer in transport.packets)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_packets_keep_what_they_carry(precision):
    body = ({"w": torch.randn(3, 4), "b": torch.randn(4), "n": torch.tensor(3)}, None, (1, "x", 0.1))
    packet = read(wire.pack("task", {"a": [1, None]}, body, precision))
    assert (packet.kind, packet.facts, packet.body[1:]) == ("task", {"a": [1, None]}, (None, (1, "x", 0.1)))
    assert torch.equal(packet.body[0]["b"], body[0]["b"])
    assert torch.equal(packet.body[0]["n"], body[0]["n"])
    expected = body[0]["w"].half().float() if precision == "fp16" else body[0]["w"]
    assert torch.equal(packet.body[0]["w"], expected)
    assert packet.body[0]["w"].dtype == torch.float32


def test_a_damaged_packet_is_one_sentence():
    whole = wire.pack("task", {}, {"w": torch.zeros(5)})
    rng = np.random.default_rng(0)
    for _ in range(300):
        broken = bytearray(whole[: rng.integers(0, len(whole) + 1)])
        for place in rng.integers(0, max(len(broken), 1), 3):
            if broken:
                broken[place] = rng.integers(0, 256)
        with contextlib.suppress(UserError):  # whatever else it raises fails the test
            wire.unpack(bytes(broken), {})


def test_losses_leave_with_three_digits():
    terms = {"loss": 1.23456789, "fix": 0.000123456, "mix": 123456.0}
    sent = leaving.reply(
        Reply(0, Update({"w": torch.zeros(1)}, 20, terms, {}), "trained", "", {}), Policy(), None, "fp32"
    )
    assert read(sent).facts["terms"] == {"loss": 1.23, "fix": 0.000123, "mix": 123000.0}

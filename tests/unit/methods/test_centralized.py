"""Centralized: one epoch a round, by hand in NumPy; who sees what; what is tested."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import nn

from semifl.configuration.config import decode
from semifl.data.augment import normalize
from semifl.data.dataset import UNKNOWN, Facts
from semifl.data.partition import Holdings
from semifl.errors import UserError
from semifl.federation.local import LocalFederation
from semifl.federation.memory import ClientMemory
from semifl.federation.sites import Place, ServerSite
from semifl.federation.tally import Tally
from semifl.federation.workers import Here
from semifl.federation.world import Round
from semifl.learning import trees
from semifl.learning.network import Network
from semifl.methods.centralized import Centralized, State
from semifl.objectives import Objective
from semifl.objectives.fixmatch import FixMatch
from semifl.objectives.mean_teacher import MeanTeacher
from semifl.objectives.mixmatch import MixMatch
from semifl.randomness import Seed

FACTS = Facts(("a", "b", "c"), mean=(0.5, 0.4, 0.3), std=(0.25, 0.3, 0.35), may_flip=True, channels=3, size=4)
LABELED, CLIENTS, PER_CLIENT = 6, 2, 5


def build_linear() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 3))


def colours() -> np.ndarray:
    return np.random.default_rng(3).integers(0, 256, (LABELED + CLIENTS * PER_CLIENT, 3))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Pictures of one colour each, which no crop or flip changes."""
    images = torch.from_numpy(colours()).to(torch.uint8)[:, :, None, None].expand(-1, -1, 4, 4).contiguous()
    labels = torch.arange(len(images)) % 3
    owners = torch.tensor([UNKNOWN] * LABELED + [client for client in range(CLIENTS) for _ in range(PER_CLIENT)])
    holdings = Holdings.of(torch.arange(len(images)), owners, CLIENTS)
    graded = {"test": (images[:LABELED], labels[:LABELED])}
    return Place(FACTS, images, holdings, labels, graded, build_linear, "cpu", ClientMemory(tmp_path))


def run_rounds(method: Centralized, place: Place, rounds: int, alone: bool = False) -> Iterator[tuple[State, Tally]]:
    """The State and the tally after each round, of two rounds that the schedule knows of."""
    place.needs = method.needs
    tally = Tally()
    server = ServerSite(place, torch.arange(LABELED), place.hidden_labels, Here(place), 1, tally)
    if alone:
        server.alone()
    state = method.start(Network(build_linear()).weights())
    for index in range(1, rounds + 1):
        t = Round(index, (index - 1) / 2, Seed(0).under("round", index))
        clients = LocalFederation(Here(place), CLIENTS, method, tally)
        state, tally.tested = method.round(t, state, server.at(t), clients)
        yield state, tally


def colours_of(images: torch.Tensor) -> set[tuple[float, ...]]:
    return {tuple(np.round(picture[:, 0, 0].tolist(), 3)) for picture in images}


@dataclass(frozen=True)
class Listening(Objective):
    """Cross-entropy that notes down what it is shown."""

    views: ClassVar[tuple[str, ...]] = ("weak",)
    ratio: int = 1
    heard: ClassVar[list[Any]] = []

    def loss(self, network, batch, memory, progress):
        self.heard.append((batch, progress))
        return {"loss": nn.functional.cross_entropy(network(batch.labeled.images), batch.labeled.labels)}


@pytest.fixture
def heard() -> list[Any]:
    Listening.heard.clear()
    return Listening.heard


def test_two_epochs_of_supervised_training_by_hand(place: Place) -> None:
    """A batch of all labels needs no order: two plain steps with momentum, Nesterov and weight decay, and cosine lr."""
    method = Centralized(batch=LABELED, lr=0.2, momentum=0.8, weight_decay=0.01)
    x = (colours()[:LABELED] / 255 - FACTS.mean) / FACTS.std
    x = np.concatenate([x, np.ones((LABELED, 1))], axis=1)
    y = np.eye(3)[np.arange(LABELED) % 3]
    first = Network(build_linear()).weights()
    W = np.concatenate([first["2.weight"].double().numpy(), first["2.bias"].double().numpy()[:, None]], axis=1)
    velocity = np.zeros_like(W)

    for (state, tally), lr in zip(run_rounds(method, place, rounds=2), (0.2, 0.1), strict=True):  # cosine at 0 and at ½
        e = np.exp(x @ W.T)
        p = e / e.sum(axis=1, keepdims=True)
        assert tally.server_terms["loss"] == pytest.approx(-(y * np.log(p)).sum() / LABELED, rel=1e-5)
        slope = (p - y).T @ x / LABELED + 0.01 * W
        velocity = 0.8 * velocity + slope  # kept between epochs
        W = W - lr * (slope + 0.8 * velocity)
        found = method.weights(state)
        np.testing.assert_allclose(found["2.weight"].double().numpy(), W[:, :-1], rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(found["2.bias"].double().numpy(), W[:, -1], rtol=1e-4, atol=1e-6)
        assert tally.lr == pytest.approx(lr)


def test_an_epoch_is_one_pass_over_the_clients_pictures(place: Place, heard: list[Any]) -> None:
    list(run_rounds(Centralized(objective=Listening(), batch=2), place, rounds=2))

    pooled = colours_of(normalize(place.images[LABELED:], FACTS))
    assert len(heard) == 2 * 5  # ten pictures, two at a time, twice
    for epoch, progress in ((heard[:5], 0.0), (heard[5:], 0.5)):
        assert colours_of(torch.cat([batch.unlabeled.views[0] for batch, _ in epoch])) == pooled
        assert {told for _, told in epoch} == {progress}
    assert all(
        colours_of(batch.labeled.images) <= colours_of(normalize(place.images[:LABELED], FACTS)) for batch, _ in heard
    )


def test_all_labels_are_those_of_server_and_clients(place: Place, heard: list[Any]) -> None:
    list(run_rounds(Centralized(objective=Listening(), batch=4, labels="all"), place, rounds=1))
    known = {}
    for batch, _ in heard:
        for picture, label in zip(batch.labeled.images, batch.labeled.labels.tolist(), strict=True):
            known[tuple(np.round(picture[:, 0, 0].tolist(), 3))] = label
    everything = normalize(place.images, FACTS)[:, :, 0, 0]
    truth = {tuple(np.round(picture.tolist(), 3)): n % 3 for n, picture in enumerate(everything)}
    assert len(known) > LABELED
    assert all(truth[picture] == label for picture, label in known.items())


def test_fully_supervised_is_one_pass_over_all_labels(place: Place) -> None:
    method = Centralized(batch=4, labels="all")
    place.needs = method.needs
    server = ServerSite(place, torch.arange(LABELED), place.hidden_labels, Here(place), 1, Tally())
    steps = [len(batch.labeled.labels) for batch in method.epoch(server)]
    assert steps == [4, 4, 4, 4]  # sixteen pictures


def test_alone_there_are_only_labels(place: Place, heard: list[Any]) -> None:
    list(run_rounds(Centralized(objective=Listening(), batch=3), place, rounds=1, alone=True))
    assert [len(batch.labeled.labels) for batch, _ in heard] == [3, 3]
    assert all(len(batch.unlabeled.positions) == 0 for batch, _ in heard)


@pytest.mark.parametrize(
    ("method", "needs"),
    [
        (Centralized(), set()),
        (Centralized(labels="all"), {"pooled_images", "client_labels"}),
        (Centralized(objective=FixMatch()), {"pooled_images"}),
        (Centralized(objective=FixMatch(), labels="all"), {"pooled_images", "client_labels"}),
    ],
)
def test_it_needs_no_more_than_it_uses(method: Centralized, needs: set[str]) -> None:
    assert method.needs == needs


def test_an_average_of_the_weights_is_tested(place: Place) -> None:
    method = Centralized(batch=LABELED, ema=0.75)
    first = {name: tensor.double().numpy() for name, tensor in Network(build_linear()).weights().items()}
    average = first
    for state, tally in run_rounds(method, place, rounds=2):  # an epoch is one step
        average = {name: 0.75 * average[name] + 0.25 * state.weights[name].double().numpy() for name in average}
        assert tally.tested is not None
        for name, tensor in tally.tested.weights.items():
            np.testing.assert_allclose(tensor.double().numpy(), average[name], rtol=1e-5, atol=1e-6)
        assert method.weights(state).keys() == first.keys()


def test_a_mean_teacher_is_tested_and_not_its_student(place: Place) -> None:
    method = Centralized(objective=MeanTeacher(), batch=4)
    for state, tally in run_rounds(method, place, rounds=1):
        assert tally.tested is not None
        assert torch.equal(tally.tested.weights["2.weight"], state.memory["teacher.2.weight"])
        assert not torch.equal(tally.tested.weights["2.weight"], state.weights["2.weight"])


def test_a_round_leaves_the_state_before_it_alone(place: Place) -> None:
    method = Centralized(objective=MeanTeacher(), batch=4, ema=0.9)
    (before, _), (after, _) = run_rounds(method, place, rounds=2)
    (again, _), *_ = run_rounds(method, place, rounds=1)
    left: list[torch.Tensor] = []
    expected: list[torch.Tensor] = []
    trees.flatten(before, left)
    trees.flatten(again, expected)
    assert all(torch.equal(a, b) for a, b in zip(left, expected, strict=True))
    assert int(after.memory["step"]) == 2 * int(before.memory["step"])


def test_the_model_of_the_first_state_is_what_it_started_with() -> None:
    weights = Network(build_linear()).weights()
    method = Centralized(objective=MixMatch(), ema=0.9)
    assert all(torch.equal(method.weights(method.start(weights))[name], weights[name]) for name in weights)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("batch", 0, "method.batch must be at least 1, not 0"),
        ("lr", 0.0, "method.lr must be above 0, not 0.0"),
        ("momentum", 1.0, "method.momentum must be at least 0 and below 1, not 1.0"),
        ("ema", 1.0, "method.ema must be at least 0 and below 1, not 1.0"),
        ("weight_decay", -1.0, "method.weight_decay must not be negative, but is -1.0"),
        ("objective", 3, "method.objective must be a section, [method.objective], not a value"),
    ],
)
def test_a_wrong_field_is_one_sentence(key: str, value: object, message: str) -> None:
    with pytest.raises(UserError) as error:
        decode({"method": {"name": "centralized", key: value}})
    assert str(error.value) == message


def test_its_page_explains_every_field_with_its_default() -> None:
    page = (Path(__file__).parents[3] / "docs/methods/centralized.md").read_text(encoding="utf-8")
    found = {field: default.strip("`") for field, default in re.findall(r"^\| `(\w+)` \| ([^|]+) \|", page, re.M)}
    plain = {field.name: json.dumps(field.default) for field in fields(Centralized) if field.name != "objective"}
    assert found == {"objective": "supervised", **plain}

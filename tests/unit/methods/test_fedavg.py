"""FedAvg against clients trained by a plain PyTorch loop and averaged in NumPy.

The pictures have one colour each, so that a crop or flip changes nothing; only the order of the pictures is shared with
the program, by its address.
"""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from semifl.data.dataset import UNKNOWN, Facts
from semifl.data.partition import Holdings
from semifl.federation.local import LocalFederation
from semifl.federation.memory import ClientMemory
from semifl.federation.sites import Place, ServerSite
from semifl.federation.tally import Tally
from semifl.federation.workers import Here
from semifl.federation.world import Round
from semifl.learning.aggregation import Mean, Median
from semifl.learning.server_optimizer import Momentum
from semifl.learning.weights import Snapshot, Weights
from semifl.methods.fedavg import FedAvg, State
from semifl.randomness import Seed

FACTS = Facts(("a", "b", "c"), mean=(0.5, 0.4, 0.3), std=(0.25, 0.3, 0.35), may_flip=True, channels=3, size=4)
LABELED = 6
SIZES = (5, 11, 0, 8)  # pictures of each client: unequal, a last batch of one, and a client without any
NORMS = ("2.weight", "2.bias")
METHOD = FedAvg(
    activity_rate=1.0,
    client_epochs=2,
    client_batch=5,
    lr=0.1,
    weight_decay=0.01,
)


def build() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.BatchNorm1d(3), nn.Linear(3, 3))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    count = LABELED + sum(SIZES)
    colours = np.random.default_rng(3).integers(0, 256, (count, 3))
    images = torch.from_numpy(colours).to(torch.uint8)[:, :, None, None].expand(-1, -1, 4, 4).contiguous()
    labels = torch.from_numpy(colours.argmax(axis=1))
    owners = torch.tensor([UNKNOWN] * LABELED + [client for client, size in enumerate(SIZES) for _ in range(size)])
    holdings = Holdings.of(torch.arange(count), owners, len(SIZES))
    graded = {"test": (images[:LABELED], labels[:LABELED])}
    needs = frozenset({"client_labels"})
    return Place(FACTS, images, holdings, labels, graded, build, "cpu", ClientMemory(tmp_path), needs)


def features(images: torch.Tensor) -> torch.Tensor:
    pixel = images[:, :, 0, 0].double() / 255
    return ((pixel - torch.tensor(FACTS.mean)) / torch.tensor(FACTS.std)).float()[:, :, None, None]


def train_plainly(place: Place, client: int, start: Weights, method: FedAvg, seed: Seed, lr: float) -> Weights:
    """Local SGD as everybody writes it; FedProx's term as part of the loss."""
    held = place.holdings[client]
    x, y = features(place.images[held]), place.hidden_labels[held]
    module = build().train()
    module.load_state_dict(start, strict=False)
    optimizer = torch.optim.SGD(
        module.parameters(),
        lr=lr,
        momentum=method.momentum,
        nesterov=method.momentum > 0,
        weight_decay=method.weight_decay,
    )
    for e in range(method.client_epochs):
        order = torch.randperm(len(x), generator=seed.at("epoch", e, "order"))
        edges = [*range(0, len(x), method.client_batch), len(x)]
        if edges[-1] - edges[-2] == 1:
            edges.pop(-2)
        for a, b in pairwise(edges):
            batch = order[a:b]
            away = sum((p - start[name]).square().sum() for name, p in module.named_parameters())
            loss = F.cross_entropy(module(x[batch]), y[batch]) + method.proximal / 2 * away
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return {name: parameter.detach().clone() for name, parameter in module.named_parameters()}


class World:
    """The place with its server, and rounds played one after the other."""

    def __init__(self, place: Place, size: int | None = None) -> None:
        self.place, self.tally = place, Tally()
        positions = torch.arange(LABELED)
        self.server = ServerSite(place, positions, place.hidden_labels, Here(place), 1, self.tally)
        self.clients = LocalFederation(Here(place), len(SIZES) if size is None else size, METHOD, self.tally)

    def first(self, method: FedAvg) -> State:
        return method.start(self.place.network.weights())

    def run_round(self, method: FedAvg, state: State, index: int) -> State:
        self.tally.reset()
        self.clients._method = method
        state, self.tally.tested = method.round(self.at(index), state, self.server, self.clients)
        return state

    @staticmethod
    def at(index: int) -> Round:
        return Round(index, (index - 1) / 4, Seed(1).under("round", index))


def client_seed(index: int, client: int) -> Seed:
    return Seed(1).under("round", index, "client", client)


def lr_of(index: int) -> float:
    return METHOD.lr * 0.5 * (1 + np.cos(np.pi * (index - 1) / 4))


def close(actual: Weights, expected: dict[str, np.ndarray], tolerance: float = 2e-6) -> None:
    assert actual.keys() == expected.keys()
    for name, tensor in actual.items():
        np.testing.assert_allclose(tensor.numpy(), expected[name], atol=tolerance, err_msg=name)


@pytest.mark.parametrize("weighting", ["examples", "uniform"])
@pytest.mark.parametrize("proximal", [0.0, 2.0])
def test_two_rounds_by_hand(place: Place, weighting: str, proximal: float) -> None:
    method = replace(METHOD, weighting=weighting, proximal=proximal)
    world = World(place)
    state = world.first(method)
    W = {name: tensor.numpy() for name, tensor in state.weights.items()}
    v = {name: np.zeros_like(value) for name, value in W.items()}

    for index in (1, 2):
        start = {name: torch.from_numpy(value) for name, value in W.items()}
        shares = np.array(SIZES if weighting == "examples" else [size > 0 for size in SIZES], dtype=float)
        local = {
            client: train_plainly(place, client, start, method, client_seed(index, client), lr_of(index))
            for client in (0, 1, 3)
        }
        state = world.run_round(method, state, index)
        for name in W:
            mean = sum(shares[client] * w[name].numpy() for client, w in local.items()) / shares.sum()
            v[name] = 0.5 * v[name] + (W[name] - mean)
            W[name] = (W[name] - v[name]).astype(np.float32)
        close(state.weights, W)
        assert [reply.outcome for reply in world.tally.replies] == ["trained", "trained", "abstained", "trained"]
        assert all("loss" in reply.update.terms for reply in world.tally.replies if reply.update)


def test_the_robust_mean_of_a_round(place: Place) -> None:
    method = replace(METHOD, aggregation=Median(), server_optimizer=Momentum(momentum=0.0))
    world = World(place)
    state = world.first(method)

    local = [
        train_plainly(place, client, state.weights, method, client_seed(1, client), METHOD.lr) for client in (0, 1, 3)
    ]
    after = world.run_round(method, state, 1)

    close(after.weights, {name: np.median([w[name].numpy() for w in local], axis=0) for name in state.weights})


def test_the_model_that_is_sent_is_tested_with_its_statistics(place: Place) -> None:
    world = World(place)
    state = world.run_round(METHOD, world.first(METHOD), 1)
    world.run_round(METHOD, state, 2)
    tested, last = world.tally.tested, METHOD.finish(world.at(3), state, world.server, world.clients)

    x = features(place.images[:LABELED])[:, :, 0, 0].numpy()
    assert tested is not None
    for model in (tested, last):
        assert all(torch.equal(model.weights[name], state.weights[name]) for name in state.weights)
        np.testing.assert_allclose(model.stats["2"].mean, x.mean(axis=0), atol=1e-6)
        np.testing.assert_allclose(model.stats["2"].var, x.var(axis=0, ddof=1), rtol=1e-5)


def test_kept_momentum_goes_on_where_it_stopped(place: Place) -> None:
    """Two rounds without averaging (one client, no global momentum) are one training of twice the epochs."""
    method = replace(METHOD, client_epochs=1, client_buffers="kept", server_optimizer=Momentum(momentum=0.0))
    world = World(place)
    world.clients.sample = lambda count, rng: (0,)  # type: ignore[method-assign]
    state = world.first(method)
    module = build()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
    held = place.holdings[0]
    for index in (1, 2):
        order = held[torch.randperm(5, generator=client_seed(index, 0).at("epoch", 0, "order"))]
        optimizer.param_groups[0]["lr"] = lr_of(index)
        optimizer.zero_grad()
        F.cross_entropy(module(features(place.images[order])), place.hidden_labels[order]).backward()
        optimizer.step()
        state = world.run_round(method, state, index)

    close(state.weights, {name: p.detach().numpy() for name, p in module.named_parameters()})


# FedBN


@pytest.mark.parametrize("buffers", ["fresh", "kept"])
@pytest.mark.parametrize("momentum", [0.9, 0.0])
def test_norms_stay_at_home_and_come_back(place: Place, buffers: str, momentum: float) -> None:
    method = replace(
        METHOD, local_norm=True, client_buffers=buffers, momentum=momentum, server_optimizer=Momentum(momentum=0.0)
    )
    world = World(place)
    first = world.first(method)
    assert place.memory is not None

    once = world.run_round(method, first, 1)
    homes = {client: place.memory.read(client, before=2) for client in (0, 1, 3)}
    twice = world.run_round(method, once, 2)

    local = {
        client: train_plainly(place, client, first.weights, method, client_seed(1, client), lr_of(1))
        for client in homes
    }
    extra = {"momentum"} if buffers == "kept" and momentum else set()
    for client, home in homes.items():
        assert home is not None
        assert home.keys() == {f"norm {name}" for name in NORMS} | extra
        for name in NORMS:
            np.testing.assert_allclose(home[f"norm {name}"], local[client][name], atol=2e-6)
            assert (home[f"norm {name}"] != first.weights[name]).all()
    for state in (once, twice):
        assert all(torch.equal(state.weights[name], first.weights[name]) for name in NORMS)
    if buffers == "fresh" or not momentum:  # a second round starts from the global rest and the client's own norms
        starts = {client: once.weights | {name: w[name] for name in NORMS} for client, w in local.items()}
        again = {c: train_plainly(place, c, start, method, client_seed(2, c), lr_of(2)) for c, start in starts.items()}
        for name in ("3.weight", "3.bias"):
            mean = sum(SIZES[client] * w[name].numpy() for client, w in again.items()) / sum(SIZES)
            np.testing.assert_allclose(twice.weights[name], mean, atol=2e-6)


def test_norms_are_not_sent(place: Place) -> None:
    bytes_up = []
    for method in (METHOD, replace(METHOD, local_norm=True)):
        world = World(place)
        world.run_round(method, world.first(method), 1)
        bytes_up.append(world.tally.bytes_up)

    assert bytes_up == [3 * 4 * (3 + 3 + 9 + 3), 3 * 4 * (9 + 3)]  # three clients, four bytes a number


# rounds in which nothing can be learned


@pytest.mark.parametrize("local_norm", [False, True])
@pytest.mark.parametrize("aggregation", [Mean(), Median()])
def test_a_federation_that_nobody_has_joined(place: Place, local_norm: bool, aggregation: Mean | Median) -> None:
    method = replace(METHOD, local_norm=local_norm, aggregation=aggregation)
    world = World(place, size=0)
    first = world.first(method)

    state = world.run_round(method, first, 1)

    assert all(torch.equal(state.weights[name], first.weights[name]) for name in first.weights)
    assert isinstance(method.finish(world.at(2), state, world.server, world.clients), Snapshot)


def test_a_cohort_without_a_picture(place: Place) -> None:
    world = World(place)
    world.clients.sample = lambda count, rng: (2,)  # type: ignore[method-assign]
    first = world.first(METHOD)

    state = world.run_round(METHOD, first, 1)

    assert all(torch.equal(state.weights[name], first.weights[name]) for name in first.weights)

"""HeteroFL against sub-networks cut by hand, trained by a plain PyTorch loop and averaged entry by entry.

The pictures have one colour each, so that a crop or flip changes nothing; only orders and widths are shared with the
program, by their addresses.
"""

import math
from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from semifl.configuration.build import build_model
from semifl.configuration.config import WarmStart, decode
from semifl.data.dataset import UNKNOWN, Facts
from semifl.data.epochs import LabeledBatch
from semifl.data.partition import Holdings
from semifl.errors import RunStopped, UserError
from semifl.federation.local import LocalFederation
from semifl.federation.sites import Place, ServerSite
from semifl.federation.tally import Tally
from semifl.federation.workers import Here
from semifl.federation.world import Cohort, Round
from semifl.learning.network import Network
from semifl.learning.server_optimizer import Momentum
from semifl.learning.weights import Snapshot, Weights
from semifl.methods.fedavg import FedAvg
from semifl.methods.heterofl import HeteroFL, State, masked_loss
from semifl.models.cnn import Cnn
from semifl.randomness import Seed
from toys import toy_model

FACTS = Facts(("a", "b", "c", "d"), (0.5, 0.4, 0.3), (0.25, 0.3, 0.35), may_flip=True, channels=3, size=8)
LABELED, SIZES = 8, (6, 4, 0, 5, 6, 3)
SPEC = Cnn(width=4)  # 4, 8, 16 and 32 channels
METHOD = HeteroFL(
    activity_rate=1.0, client_epochs=2, client_batch=3, lr=0.05, weight_decay=0.01, widths=(1.0, 0.5, 0.25)
)


def place(build: Any = SPEC.build) -> Place:
    count = LABELED + sum(SIZES)
    colours = np.random.default_rng(3).integers(0, 256, (count, 3))
    images = torch.from_numpy(colours).to(torch.uint8)[:, :, None, None].expand(-1, -1, 8, 8).contiguous()
    labels = torch.from_numpy(colours.argmax(axis=1))
    owners = torch.tensor([UNKNOWN] * LABELED + [client for client, size in enumerate(SIZES) for _ in range(size)])
    labels[owners == 0] = torch.tensor([0, 1, 0, 1, 0, 1])  # nobody has class 3, and client 0 has no class 2
    labels[:LABELED] = torch.arange(LABELED) % 4
    holdings = Holdings.of(torch.arange(count), owners, len(SIZES))
    factory = partial(build_model, build, {}, FACTS, 0, WarmStart())
    graded = {"test": (images[:LABELED], labels[:LABELED])}
    return Place(FACTS, images, holdings, labels, graded, factory, "cpu", None, frozenset({"client_labels"}))


class World:
    def __init__(self, place: Place, size: int = len(SIZES)) -> None:
        self.place, self.tally = place, Tally()
        self.server = ServerSite(place, torch.arange(LABELED), place.hidden_labels, Here(place), 1, self.tally)
        self.clients = LocalFederation(Here(place), size, METHOD, self.tally)

    def run_round(self, method: Any, state: Any, index: int = 1) -> Any:
        self.tally.reset()
        self.clients._method = method
        state, self.tally.tested = method.round(round_at(index), state, self.server, self.clients)
        return state


def round_at(index: int) -> Round:
    return Round(index, (index - 1) / 4, Seed(1).under("round", index))


def train_plainly(place: Place, client: int, start: Weights, method: HeteroFL, width: float) -> Weights:
    """A narrow network with the leading entries of `start`, trained as everybody does it."""
    held = place.holdings[client]
    pixels = place.images[held].double() / 255
    mean, std = (torch.tensor(each, dtype=torch.float64)[:, None, None] for each in (FACTS.mean, FACTS.std))
    x, y = ((pixels - mean) / std).float(), place.hidden_labels[held]
    module = SPEC.build(channels=3, size=8, classes=4, share=width).train()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.copy_(start[name][tuple(slice(n) for n in parameter.shape)])
    optimizer = torch.optim.SGD(module.parameters(), lr=method.lr, momentum=0.9, nesterov=True, weight_decay=0.01)
    seed = Seed(1).under("round", 1, "client", client)
    for e in range(method.client_epochs):
        order = torch.randperm(len(x), generator=seed.at("epoch", e, "order"))
        edges = [*range(0, len(x), method.client_batch), len(x)]
        if edges[-1] - edges[-2] == 1:
            edges.pop(-2)
        for a, b in pairwise(edges):
            logits = module(x[order[a:b]])
            if method.masked_loss:
                logits = logits * torch.tensor([float(c in y.tolist()) for c in range(4)])
            optimizer.zero_grad()
            F.cross_entropy(logits, y[order[a:b]]).backward()
            optimizer.step()
    return {name: parameter.detach() for name, parameter in module.named_parameters()}


def mean_by_hand(place: Place, local: dict[int, Weights], start: Weights, masked: bool) -> dict[str, np.ndarray]:
    """Entry by entry, in Python: who has it, and the mean of what they say."""
    *_, weight, bias = start
    result = {}
    for name, tensor in start.items():
        result[name] = tensor.numpy().copy()
        for entry in np.ndindex(*tensor.shape):
            said = []
            for client, w in local.items():
                inside = all(i < n for i, n in zip(entry, w[name].shape, strict=True))
                classes = place.hidden_labels[place.holdings[client]].tolist()
                if inside and (not masked or name not in (weight, bias) or entry[0] in classes):
                    said.append(float(w[name][entry]))
            if said:
                result[name][entry] = np.mean(said)
    return result


# the round


@pytest.mark.parametrize("masked", [True, False])
def test_a_round_by_hand(masked: bool) -> None:
    method, world = (
        replace(METHOD, masked_loss=masked, assignment="fix", server_optimizer=Momentum(momentum=0.0)),
        World(place()),
    )
    state = method.start(world.place.network.weights())
    width = method.assign(tuple(range(len(SIZES))), len(SIZES), round_at(1))
    assert set(width.values()) == {1.0, 0.5, 0.25}  # or the test would show little
    local = {
        client: train_plainly(world.place, client, state.weights, method, width[client])
        for client in width
        if SIZES[client]
    }
    expected = mean_by_hand(world.place, local, state.weights, masked)

    after = world.run_round(method, state)

    for name, tensor in after.weights.items():
        np.testing.assert_allclose(tensor.numpy(), expected[name], atol=1e-5, err_msg=name)
    moved = [reply.outcome for reply in world.tally.replies]
    assert moved == ["trained", "trained", "abstained", "trained", "trained", "trained"]
    *_, bias = after.weights
    assert masked == torch.equal(after.weights[bias][3], state.weights[bias][3])  # nobody has class 3


def test_what_nobody_holds_keeps_its_value() -> None:
    class Narrow(HeteroFL):
        """A round in which everybody happens to be narrow."""

        def assign(self, S_t: Cohort, M: int, t: Round) -> dict[int, float]:
            return dict.fromkeys(S_t, 0.25)

    method, world = Narrow(activity_rate=1.0, client_epochs=1, server_optimizer=Momentum(momentum=0.0)), World(place())
    state = method.start(world.place.network.weights())

    after = world.run_round(method, state)

    weight = "4.weight"  # from 4 to 8 channels, of which a quarter has 1 and 2
    assert torch.equal(after.weights[weight][2:], state.weights[weight][2:])
    assert torch.equal(after.weights[weight][:, 1:], state.weights[weight][:, 1:])
    assert (after.weights[weight][:2, :1] != state.weights[weight][:2, :1]).any()


def test_only_the_cut_tensors_travel() -> None:
    def numbers(a: int, b: int, c: int, d: int) -> int:
        """Of a network with these channels: convolutions, norms, and the last layer."""
        return 9 * (3 * a + a * b + b * c + c * d) + 2 * (a + b + c + d) + 4 * d + 4

    count = {1.0: numbers(4, 8, 16, 32), 0.5: numbers(2, 4, 8, 16), 0.25: numbers(1, 2, 4, 8)}
    world = World(place())
    width = METHOD.assign(tuple(range(len(SIZES))), len(SIZES), round_at(1))

    world.run_round(METHOD, METHOD.start(world.place.network.weights()))

    assert world.tally.bytes_down == sum(4 * count[width[client]] for client in width)
    # Back come four bytes for each number and for each of four classes, from those that have pictures.
    assert world.tally.bytes_up == sum(4 * count[width[client]] + 4 * 4 for client in width if SIZES[client])


def test_at_full_width_it_is_fedavg() -> None:
    shared = {"activity_rate": 0.5, "client_epochs": 2, "client_batch": 3}
    hetero, world = HeteroFL(widths=(1.0,), masked_loss=False, **shared), World(place())
    fedavg = FedAvg(weighting="uniform", **shared)
    first = world.place.network.weights()
    states: list[Any] = [hetero.start(first), fedavg.start(first)]
    for index in (1, 2, 3):
        states = [world.run_round(method, state, index) for method, state in zip((hetero, fedavg), states, strict=True)]

    for name, tensor in states[0].weights.items():
        assert torch.equal(tensor, states[1].weights[name]), name
    assert any(not torch.equal(tensor, first[name]) for name, tensor in states[0].weights.items())


def test_the_whole_model_is_tested_and_kept() -> None:
    world = World(place())
    first = METHOD.start(world.place.network.weights())
    state = world.run_round(METHOD, first)
    tested, last = world.tally.tested, METHOD.finish(round_at(2), state, world.server, world.clients)

    assert tested is not None
    for model, weights in ((tested, first.weights), (last, state.weights)):
        assert all(torch.equal(model.weights[name], weights[name]) for name in weights)
        assert model.stats.keys() == world.server.statistics(weights).keys() == {"1", "5", "9", "12"}


def test_a_federation_that_nobody_has_joined() -> None:
    for assignment in ("fix", "dynamic"):
        method, world = replace(METHOD, assignment=assignment), World(place(), size=0)
        first = method.start(world.place.network.weights())

        state: State = world.run_round(method, first)

        assert all(torch.equal(state.weights[name], first.weights[name]) for name in first.weights)
        assert isinstance(method.finish(round_at(2), state, world.server, world.clients), Snapshot)


# who gets which width


def test_fixed_widths_are_dealt_evenly_and_stay() -> None:
    method, everyone = HeteroFL(assignment="fix"), tuple(range(100))

    first = method.assign(everyone, 100, round_at(1))

    assert Counter(first.values()) == dict.fromkeys(method.widths, 20)
    assert list(first.values()) != sorted(first.values(), reverse=True)
    assert method.assign(everyone, 100, round_at(9)) == first
    assert method.assign((7, 31), 100, round_at(2)) == {7: first[7], 31: first[31]}
    assert method.assign(everyone, 100, Round(1, 0.0, Seed(2).under("round", 1))) != first


def test_dynamic_widths_are_drawn_anew() -> None:
    method, everyone = HeteroFL(assignment="dynamic"), tuple(range(100))

    rounds = [method.assign(everyone, 100, round_at(index)) for index in range(1, 41)]

    assert rounds[0] != rounds[1]
    assert method.assign((7,), 100, round_at(1)) == {7: rounds[0][7]}  # whoever else is in the cohort
    counts = Counter(width for widths in rounds for width in widths.values())
    # 4000 draws, 800 expected of each with a standard deviation of √(4000 · 0.2 · 0.8) ≈ 25.
    assert all(abs(counts[width] - 800) < 5 * math.sqrt(4000 * 0.2 * 0.8) for width in method.widths)


# the masked loss


def test_the_masked_loss_by_hand() -> None:
    logits = np.array([[2.0, -1.0, 5.0, 0.5], [0.1, 0.2, -3.0, 4.0]])
    labels, held = [0, 1], [True, True, False, False]
    network = Network(nn.Linear(4, 4, bias=False, dtype=torch.float64))
    network.load({"weight": torch.eye(4, dtype=torch.float64)})

    batch = LabeledBatch(torch.from_numpy(logits), torch.tensor(labels))
    loss = masked_loss(network, batch, torch.tensor(held))["loss"]

    masked = logits * np.array(held)  # a logit of 0, not of −∞: the missing classes still share the probability
    expected = [np.log(np.exp(row).sum()) - row[label] for row, label in zip(masked, labels, strict=True)]
    assert float(loss.detach()) == pytest.approx(np.mean(expected), rel=1e-12)
    loss.backward()
    gradient = network.module.weight.grad
    assert not gradient[2:].any()
    assert gradient[:2].any()


# what cannot be


def test_a_users_model_cannot_be_cut() -> None:
    with pytest.raises(UserError, match="this model cannot be cut to a narrower one: heterofl needs one of our models"):
        build_model(toy_model, {}, FACTS, 0, WarmStart(), width=0.5)
    world = World(place(toy_model))
    with pytest.raises(RunStopped, match=r"client \d failed in round 1: this model cannot be cut to a narrower one"):
        world.run_round(METHOD, METHOD.start(world.place.network.weights()))


def test_a_users_model_that_knows_shares_can() -> None:
    def model(channels: int, classes: int, share: float = 1.0) -> nn.Module:
        hidden = math.ceil(8 * share)
        return nn.Sequential(
            nn.Conv2d(channels, hidden, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(hidden, classes)
        )

    world = World(place(model))
    first = METHOD.start(world.place.network.weights())

    assert not torch.equal(world.run_round(METHOD, first).weights["0.weight"], first.weights["0.weight"])


def test_first_weights_of_a_file_are_for_the_whole_model() -> None:
    """A sub-network's weights come by message, so the file, which cannot fit it, is not read."""
    module = build_model(SPEC.build, {}, FACTS, 0, WarmStart(weights="there is no such file"), width=0.5)

    assert module[0].weight.shape == (2, 3, 3, 3)


@pytest.mark.parametrize("widths", [[], [0.5], [1.0, 0.0], [1.0, 1.5], [1.0, -0.5]])
def test_widths_that_cannot_be(widths: list[float]) -> None:
    with pytest.raises(UserError, match=r"method\.widths must lie above 0 and up to 1, and 1 must be among them"):
        decode({"method": {"name": "heterofl", "widths": widths}})


def test_robust_means_are_refused() -> None:
    with pytest.raises(UserError, match=r'method\.aggregation\.name must be "mean" in heterofl'):
        decode({"method": {"name": "heterofl", "aggregation": "median"}})

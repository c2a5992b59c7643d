"""One full SemiFL round against an independent straight-line computation in NumPy float64.

The toy world has pictures of one colour each, so that a crop or flip changes nothing and a picture is three numbers.
The model is BatchNorm over those three and a linear layer. The strong view is replaced by the negative of the picture;
the real ones are tested against PIL elsewhere. Only the random draws are shared with the program, by their addresses.
"""

import math
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import semifl.data.mixtures as mixtures
from semifl.data.dataset import UNKNOWN, Facts
from semifl.data.partition import Holdings
from semifl.federation.local import LocalFederation
from semifl.federation.memory import ClientMemory
from semifl.federation.sites import Place, ServerSite
from semifl.federation.tally import Tally
from semifl.federation.workers import Here
from semifl.federation.world import Round
from semifl.learning.server_optimizer import Momentum
from semifl.methods.semifl import SemiFL
from semifl.randomness import Seed

FACTS = Facts(("a", "b", "c"), mean=(0.5, 0.4, 0.3), std=(0.25, 0.3, 0.35), may_flip=True, channels=3, size=4)
LABELED, PER_CLIENT, CLIENTS = 9, 11, 4
METHOD = SemiFL(
    activity_rate=0.5,
    client_epochs=2,
    server_epochs=2,
    client_batch=4,
    server_batch=4,
    threshold=0.4,
    lr=0.1,
    momentum=0.9,
    weight_decay=0.01,
    clip_norm=0.7,
    server_optimizer=Momentum(momentum=0.5),
    mix_weight=0.8,
    statistics="cohort",
)


def build_toy() -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.BatchNorm1d(3), nn.Linear(3, 3))


@pytest.fixture
def place(tmp_path: Path) -> Place:
    colours = np.random.default_rng(3).integers(0, 256, (LABELED + CLIENTS * PER_CLIENT, 3))
    images = torch.from_numpy(colours).to(torch.uint8)[:, :, None, None].expand(-1, -1, 4, 4).contiguous()
    labels = torch.from_numpy(colours.argmax(axis=1))
    labels[:LABELED] = torch.arange(LABELED) % 3
    owners = torch.tensor([UNKNOWN] * LABELED + [client for client in range(CLIENTS) for _ in range(PER_CLIENT)])
    holdings = Holdings.of(torch.arange(len(images)), owners, CLIENTS)
    graded = {"test": (images[:LABELED], labels[:LABELED])}
    return Place(FACTS, images, holdings, labels, graded, build_toy, "cpu", ClientMemory(tmp_path))


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


class Straight:
    """The toy model by hand: parameters γ, β of BatchNorm and A, b of the linear layer."""

    NAMES = ("2.weight", "2.bias", "3.weight", "3.bias")

    def __init__(self, weights: list[np.ndarray]) -> None:
        self.p = [w.copy() for w in weights]
        self.velocity = [np.zeros_like(w) for w in weights]

    def gradient(self, x: np.ndarray, parts: list[tuple[float, np.ndarray]]) -> list[np.ndarray]:
        """Of Σ share · mean cross-entropy to each set of labels, with batch statistics."""
        γ, β, A, b = self.p
        n = len(x)
        mean, var = x.mean(axis=0), x.var(axis=0)
        std = np.sqrt(var + 1e-5)
        hat = (x - mean) / std
        out = hat * γ + β
        prob = softmax(out @ A.T + b)
        dz = sum(share * (prob - np.eye(3)[y]) / n for share, y in parts)
        dout = dz @ A
        return [(dout * hat).sum(axis=0), dout.sum(axis=0), dz.T @ out, dz.sum(axis=0)]

    def step(self, gradients: list[np.ndarray], method: SemiFL, lr: float, first: bool) -> None:
        norm = math.sqrt(sum((g**2).sum() for g in gradients))
        scale = min(1.0, method.clip_norm / (norm + 1e-6)) if method.clip_norm else 1.0
        for i, g in enumerate(gradients):
            d = scale * g + method.weight_decay * self.p[i]
            self.velocity[i] = d if first else method.momentum * self.velocity[i] + d
            self.p[i] = self.p[i] - lr * (d + method.momentum * self.velocity[i])

    def infer(self, x: np.ndarray, mean: np.ndarray, var: np.ndarray) -> np.ndarray:
        γ, β, A, b = self.p
        return softmax(((x - mean) / np.sqrt(var + 1e-5) * γ + β) @ A.T + b)


def features(images: torch.Tensor) -> np.ndarray:
    pixel = images[:, :, 0, 0].numpy().astype(np.float64) / 255
    return (pixel - np.array(FACTS.mean)) / np.array(FACTS.std)


def cuts(n: int, size: int) -> list[slice]:
    """Batches of `size`; a last one of a single picture joins the one before."""
    edges = [*range(0, n, size), n]
    if len(edges) > 2 and edges[-1] - edges[-2] == 1:
        edges.pop(-2)
    return [slice(a, b) for a, b in pairwise(edges)]


def perm(n: int, seed: Seed, *address: str | int) -> np.ndarray:
    return torch.randperm(n, generator=seed.at(*address)).numpy()


def straight_server(model: Straight, place: Place, method: SemiFL, lr: float, seed: Seed) -> None:
    x, y = features(place.images[:LABELED]), place.hidden_labels[:LABELED].numpy()
    first = True
    for e in range(method.server_epochs):
        order = perm(LABELED, seed, "epoch", e, "order")
        for cut in cuts(LABELED, method.server_batch):
            model.step(model.gradient(x[order[cut]], [(1.0, y[order[cut]])]), method, lr, first)
            first = False


def straight_client(
    start: Straight,
    x: np.ndarray,
    negative: np.ndarray,
    stats: tuple[np.ndarray, np.ndarray],
    method: SemiFL,
    lr: float,
    seed: Seed,
) -> Straight | None:
    prob = start.infer(x, *stats)
    y, keep = prob.argmax(axis=1), np.flatnonzero(prob.max(axis=1) >= method.threshold)
    if len(keep) == 0:
        return None
    model, first = Straight(start.p), True
    drawn = torch.randint(len(x), (len(keep),), generator=seed.at("mix")).numpy()
    for e in range(method.client_epochs):
        fix = keep[perm(len(keep), seed, "epoch", e, "fix order")]
        mix = drawn[perm(len(keep), seed, "epoch", e, "mix order")]
        pieces = cuts(len(keep), method.client_batch)
        lambdas = seed.numpy_at("epoch", e, 0, "lambda").beta(method.mix_beta, method.mix_beta, len(pieces))
        for λ, cut in zip(lambdas.astype(np.float32).astype(np.float64), pieces, strict=True):
            a, b = fix[cut], mix[cut]
            g_fix = model.gradient(negative[a], [(1.0, y[a])])
            g_mix = model.gradient(λ * x[a] + (1 - λ) * x[b], [(λ, y[a]), (1 - λ, y[b])])
            total = [one + method.mix_weight * two for one, two in zip(g_fix, g_mix, strict=True)]
            model.step(total, method, lr, first)
            first = False
    return model


def straight_round(place: Place, method: SemiFL, t: Round, W: list[np.ndarray], velocity: list[np.ndarray]):
    """Algorithm 1, one round: the new weights, velocity, and who trained."""
    lr = method.lr * 0.5 * (1 + math.cos(math.pi * t.progress))
    server = Straight(W)
    straight_server(server, place, method, lr, t.seed.under("server"))
    count = max(math.floor(method.activity_rate * CLIENTS), 1)
    cohort = sorted(torch.randperm(CLIENTS, generator=t.seed.at("cohort"))[:count].tolist())
    held = {m: torch.arange(LABELED + m * PER_CLIENT, LABELED + (m + 1) * PER_CLIENT) for m in cohort}
    union = np.concatenate([features(place.images[:LABELED]), *(features(place.images[held[m]]) for m in cohort)])
    stats = union.mean(axis=0), union.var(axis=0, ddof=1)
    trained = []
    for m in cohort:
        images = place.images[held[m]]
        model = straight_client(
            server, features(images), features(255 - images), stats, method, lr, t.seed.under("client", m)
        )
        if model is not None:
            trained.append(model.p)
    if not trained:
        return server.p, velocity, 0
    mean = [np.mean([p[i] for p in trained], axis=0) for i in range(4)]
    velocity = [
        method.server_optimizer.momentum * v + (w - m) for v, w, m in zip(velocity, server.p, mean, strict=True)
    ]
    return [w - v for w, v in zip(server.p, velocity, strict=True)], velocity, len(trained)


def run_rounds(place: Place, method: SemiFL, rounds: int):
    """The program and the straight line side by side."""
    tally = Tally()
    pool = Here(place)
    server = ServerSite(place, torch.arange(LABELED), place.hidden_labels, pool, 1, tally)
    clients = LocalFederation(pool, CLIENTS, method, tally)
    state = method.start(place.network.weights())
    W = [state.weights[name].double().numpy() for name in Straight.NAMES]
    velocity = [np.zeros_like(w) for w in W]
    for index in range(1, rounds + 1):
        seed = Seed(11).under("round", index)
        t = Round(index, (index - 1) / 10, seed)
        tally.reset()
        state, tally.tested = method.round(t, state, server.at(t), clients)
        W, velocity, trained = straight_round(place, method, t, W, velocity)
        yield state, W, velocity, trained, tally


@pytest.fixture(autouse=True)
def negative_as_strong_view(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mixtures, "strong", lambda images, facts, kind, generator: 255 - images)


def assert_equal(weights, expected) -> None:
    for name, value in zip(Straight.NAMES, expected, strict=True):
        np.testing.assert_allclose(weights[name].numpy(), value, rtol=0, atol=1e-6, err_msg=name)


def test_two_rounds_equal_the_straight_line(place: Place) -> None:
    # Two rounds, so that the velocity of the first enters the second.
    for state, W, velocity, trained, tally in run_rounds(place, METHOD, rounds=2):
        assert_equal(state.weights, W)
        assert_equal(state.past.first, velocity)
        assert trained == 2
        assert sum(reply.outcome == "trained" for reply in tally.replies) == 2
        # The threshold really divides the pictures; otherwise the round would not test it.
        confident = sum(reply.facts["confident"] for reply in tally.replies)
        assert 0 < confident < 2 * PER_CLIENT


def test_without_mixup_and_momentum_the_average_itself_is_the_new_model(place: Place) -> None:
    method = replace(METHOD, mix_weight=0.0, server_optimizer=Momentum(momentum=0.0), clip_norm=0.0)
    for state, W, _, trained, _ in run_rounds(place, method, rounds=2):
        assert trained == 2
        assert_equal(state.weights, W)


def test_a_round_in_which_all_abstain_is_a_fine_tune_and_leaves_the_velocity_alone(place: Place) -> None:
    warm, *_ = next(iter(run_rounds(place, METHOD, rounds=1)))
    method = replace(METHOD, threshold=1.0)
    for state, W, _, trained, tally in run_rounds(place, method, rounds=1):
        assert trained == 0
        assert [reply.outcome for reply in tally.replies] == ["abstained", "abstained"]
        assert_equal(state.weights, W)
        assert all(float(v.abs().max()) == 0 for v in state.past.first.values())
        assert tally.bytes_up == 2 * (3 + 3) * 8  # two clients' means and variances of one layer, no weights
    assert any(float(v.abs().max()) > 0 for v in warm.past.first.values())

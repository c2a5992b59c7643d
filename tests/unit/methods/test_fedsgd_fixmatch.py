"""FedSGD + FixMatch: every step is one gradient of the union of all batches, by NumPy; one optimiser for ever."""

import numpy as np
import pytest
import torch

from semifl.federation.sites import ClientSite
from semifl.federation.tally import tensor_bytes
from semifl.federation.world import Round
from semifl.randomness import Seed
from testbed import Testbed

WEIGHT, BIAS = "1.weight", "1.bias"  # of toys:linear_model
HYPER = {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "clip_norm": 0.5}


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def flat(images: torch.Tensor) -> np.ndarray:
    return images.double().numpy().reshape(len(images), -1)


def gradient(x: np.ndarray, y: np.ndarray, A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of the mean cross-entropy of a linear classifier, with the bias as a last column."""
    error = softmax(x @ A.T + b) - np.eye(len(b))[y]
    return np.concatenate([error.T @ x, error.sum(axis=0)[:, None]], axis=1) / len(x)


class ByHand:
    """Nesterov's SGD with decay and clipping, as PyTorch has it: v is g at first, then μ·v + g; the step is g + μ·v."""

    def __init__(self, weights: dict) -> None:
        self.W = np.concatenate([weights[WEIGHT].double().numpy(), weights[BIAS].double().numpy()[:, None]], axis=1)
        self.v: np.ndarray | None = None

    def step(self, g: np.ndarray) -> None:
        g = g * min(1.0, HYPER["clip_norm"] / (np.linalg.norm(g) + 1e-6))
        g = g + HYPER["weight_decay"] * self.W
        self.v = g if self.v is None else HYPER["momentum"] * self.v + g
        self.W = self.W - HYPER["lr"] * (g + HYPER["momentum"] * self.v)


def union(testbed: Testbed, t: Round, cohort: tuple[int, ...], lap: int, W: np.ndarray, τ: float) -> list[np.ndarray]:
    """Strong views and pseudo-labels of the confident pictures of all these clients' batches, laid end to end."""
    strong, labels = [], []
    for client in cohort:
        site = ClientSite(testbed.place, client, t.seed.under("client", client), None)
        batch = testbed.method.lap_batch(site, lap)
        p = softmax(flat(batch.views[0]) @ W[:, :-1].T + W[:, -1])
        sure = p.max(axis=1) >= τ
        strong.append(flat(batch.views[1])[sure])
        labels.append(p.argmax(axis=1)[sure])
    return [np.concatenate(strong), np.concatenate(labels)]


@pytest.mark.parametrize("τ", [0.0, 0.7], ids=["all are sure", "some are"])
def test_k_clients_and_one_step_are_one_step_on_the_union_of_their_batches(τ: float) -> None:
    testbed = Testbed(
        model="toys:linear_model", name="fedsgd_fixmatch", threshold=τ, client_batch=4, server_batch=3, laps=2, **HYPER
    )
    state, by_hand, counts = testbed.method.start(testbed.first), ByHand(testbed.first), []
    for index in (1, 2):  # the second round goes on with the momentum of the first
        t = Round(index, 0.0, Seed(0).under("round", index))
        steps = list(testbed.method.cohorts(testbed.clients, t))
        state = testbed.round(index, state)
        assert len(testbed.server.fits) == len(steps) == 2  # everyone at once, two laps
        for (lap, cohort), (job, _) in zip(steps, testbed.server.fits, strict=True):
            A, b = by_hand.W[:, :-1], by_hand.W[:, -1]
            (labeled,) = job.batches
            g = gradient(flat(labeled.images), labeled.labels.numpy(), A, b)
            x, y = union(testbed, t, cohort, lap, by_hand.W, τ)
            counts.append(len(x))
            by_hand.step(g + gradient(x, y, A, b) if len(x) else g)
        np.testing.assert_allclose(state.weights[WEIGHT].numpy(), by_hand.W[:, :-1], atol=2e-5)
        np.testing.assert_allclose(state.weights[BIAS].numpy(), by_hand.W[:, -1], atol=2e-5)
    assert set(counts) == {16} if τ == 0.0 else any(0 < count < 16 for count in counts)


def test_a_lap_asks_everyone_once_and_the_laps_of_all_batches_are_a_pass_over_all_pictures() -> None:
    testbed = Testbed(name="fedsgd_fixmatch", clients=5, activity_rate=0.4, client_batch=3, laps=3)
    t = Round(1, 0.0, Seed(0).under("round", 1))
    steps = list(testbed.method.cohorts(testbed.clients, t))
    assert [lap for lap, _ in steps] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    for lap in range(3):
        cohorts = [cohort for each, cohort in steps if each == lap]
        assert [len(cohort) for cohort in cohorts] == [2, 2, 1]
        assert sorted(client for cohort in cohorts for client in cohort) == list(range(5))
    # Eight pictures in batches of three: 3 + 3 + 2, each picture once; the fourth lap begins a new order.
    site = ClientSite(testbed.place, 0, t.seed.under("client", 0), None)
    batches = [testbed.method.lap_batch(site, lap).positions.tolist() for lap in range(6)]
    assert [len(batch) for batch in batches] == [3, 3, 2, 3, 3, 2]
    for half in (batches[:3], batches[3:]):
        assert sorted(position for batch in half for position in batch) == list(range(8))
    assert batches[:3] != batches[3:]


def test_a_round_costs_one_model_down_and_one_up_for_every_batch_of_a_client() -> None:
    testbed = Testbed(name="fedsgd_fixmatch", threshold=0.0, client_batch=4, laps=3)
    testbed.round(1, testbed.method.start(testbed.first))
    model = tensor_bytes(testbed.first)
    assert testbed.tally.bytes_down == testbed.tally.bytes_up == 3 * 4 * model  # three laps, four clients
    # One entry for each client, of all its turns: ten pictures, seen once and two of them twice.
    assert [reply.client for reply in testbed.tally.replies] == [0, 1, 2, 3]
    assert [reply.facts["images"] for reply in testbed.tally.replies] == [10] * 4


def test_a_client_that_is_sure_of_nothing_gives_nothing_and_labels_go_on() -> None:
    testbed = Testbed(name="fedsgd_fixmatch", threshold=1.0, laps=2)
    state = testbed.round(1, testbed.method.start(testbed.first))
    assert {reply.outcome for reply in testbed.clients.replies} == {"abstained"}
    assert testbed.tally.bytes_up == 0
    assert any(not torch.equal(state.weights[name], tensor) for name, tensor in testbed.first.items())


def test_without_clients_it_is_the_servers_epochs() -> None:
    testbed = Testbed(name="fedsgd_fixmatch", server_epochs=3)
    testbed.clients._size = 0
    state = testbed.round(1, testbed.method.start(testbed.first))
    ((job, fitted),) = testbed.server.fits
    assert state.weights is fitted.weights
    assert "momentum" in state.momentum
    assert job.memory == {}


@pytest.mark.parametrize(
    "bad", [{"laps": 0}, {"server_optimizer": {"momentum": 0.5}}, {"aggregation": "median"}, {"proximal": 0.1}]
)
def test_bad_values_are_named(bad: dict) -> None:
    with pytest.raises(Exception, match=next(iter(bad))):
        Testbed(name="fedsgd_fixmatch", **bad)

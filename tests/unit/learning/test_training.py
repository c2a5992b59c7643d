"""The one training loop against stochastic gradient descent written out in NumPy float64."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from semifl.learning.network import Network
from semifl.learning.training import SGD, Fit, Memory, cosine, fit
from semifl.learning.weights import Weights
from semifl.randomness import Seed


class Pairs(NamedTuple):
    inputs: Tensor
    targets: Tensor


def squares(network: Network, batch: Pairs) -> dict[str, Tensor]:
    error = network(batch.inputs) - batch.targets
    loss = 0.5 * error.square().sum(dim=1).mean()
    return {"loss": loss, "twice": 2 * loss, "biggest": error.detach().abs().max()}


def batches(count: int = 6) -> list[Pairs]:
    generator = torch.Generator().manual_seed(4)

    def draw(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=generator, dtype=torch.float64)

    return [Pairs(draw(rows, 3), draw(rows, 2)) for rows in ([4, 4, 2] * count)[:count]]  # a last batch may be smaller


def linear() -> Network:
    torch.manual_seed(9)
    return Network(nn.Linear(3, 2, dtype=torch.float64))


START: Weights = {
    "weight": torch.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.5]], dtype=torch.float64),
    "bias": torch.tensor([0.1, -0.2], dtype=torch.float64),
}


def by_hand(
    steps: list[Pairs], sgd: SGD, velocity: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray | None, list[float]]:
    """Weights (as one vector), momentum and losses after gradient descent on ½‖Wx + b − y‖²."""
    W, b = START["weight"].numpy().copy(), START["bias"].numpy().copy()
    losses = []
    for batch in steps:
        x, y = batch.inputs.numpy(), batch.targets.numpy()
        error = x @ W.T + b - y
        losses.append(0.5 * (error**2).sum() / len(x))
        gradient = np.concatenate([(error.T @ x / len(x)).ravel(), error.mean(axis=0)])
        if sgd.clip_norm:
            gradient *= min(1.0, sgd.clip_norm / (np.linalg.norm(gradient) + 1e-6))
        vector = np.concatenate([W.ravel(), b])
        gradient = gradient + sgd.weight_decay * vector
        step = gradient
        if sgd.momentum:
            velocity = gradient if velocity is None else sgd.momentum * velocity + gradient
            step = gradient + sgd.momentum * velocity if sgd.nesterov else velocity
        vector = vector - sgd.lr * step
        W, b = vector[:6].reshape(2, 3), vector[6:]
    return vector, velocity, losses


def vector_of(weights: Weights) -> np.ndarray:
    return np.concatenate([tensor.numpy().ravel() for tensor in weights.values()])


PLAIN = SGD(lr=0.1, momentum=0.0, nesterov=False, weight_decay=0.0)


@pytest.mark.parametrize(
    "sgd",
    [
        PLAIN,
        SGD(lr=0.1, momentum=0.9, nesterov=False, weight_decay=0.0),
        SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.0),
        SGD(lr=0.1, momentum=0.0, nesterov=True, weight_decay=0.1),
        SGD(lr=0.05, momentum=0.5, nesterov=True, weight_decay=0.3),
        SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01, clip_norm=0.5),
        SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01, clip_norm=100.0),
        SGD(lr=0.03),
    ],
    ids=["plain", "momentum", "nesterov", "decay", "both", "clipped", "hardly clipped", "defaults"],
)
def test_training_is_gradient_descent(sgd: SGD) -> None:
    expected, velocity, losses = by_hand(batches(), sgd)

    fitted = fit(linear(), Fit(START, iter(batches()), squares, sgd, Seed(0)))

    np.testing.assert_allclose(vector_of(fitted.weights), expected, rtol=1e-10, atol=1e-12)
    assert fitted.terms["loss"] == pytest.approx(np.mean(losses), rel=1e-12)
    if velocity is None:
        assert fitted.memory == {}
    else:
        np.testing.assert_allclose(fitted.memory["momentum"].numpy(), velocity, rtol=1e-10, atol=1e-12)


def test_the_clipped_case_clips() -> None:
    """Guards the test above: at 0.5 the gradients really are too long, at 100 they are not."""
    free, clipped, loose = (by_hand(batches(), replace(PLAIN, clip_norm=norm))[0] for norm in (0.0, 0.5, 100.0))

    assert np.abs(clipped - free).max() > 0.01
    np.testing.assert_array_equal(loose, free)


def test_weight_decay_pulls_on_every_parameter() -> None:
    # A loss without gradient: one step multiplies everything, biases and BatchNorm's too, by 1 − lr·decay = 0.9.
    torch.manual_seed(0)
    network = Network(nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3)))
    start = {name: torch.full_like(tensor, 2.0) for name, tensor in network.weights().items()}
    sgd = SGD(lr=0.2, momentum=0.0, nesterov=False, weight_decay=0.5)

    fitted = fit(network, Fit(start, [(torch.zeros(2, 3),)], lambda n, b: {"loss": 0 * n(b[0]).sum()}, sgd, Seed(0)))

    assert set(fitted.weights) == {"0.weight", "0.bias", "1.weight", "1.bias"}
    for name, tensor in fitted.weights.items():
        np.testing.assert_allclose(tensor.numpy(), 1.8, rtol=1e-6, err_msg=name)


def test_kept_memory_continues_where_it_stopped() -> None:
    sgd = SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)
    expected, velocity, _ = by_hand(batches(6), sgd)

    half = fit(linear(), Fit(START, batches(6)[:3], squares, sgd, Seed(0)))
    rest = fit(linear(), Fit(half.weights, batches(6)[3:], squares, sgd, Seed(0), half.memory))

    np.testing.assert_allclose(vector_of(rest.weights), expected, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(rest.memory["momentum"].numpy(), velocity, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("memory", [None, {}])
def test_without_memory_momentum_starts_afresh(memory: Memory | None) -> None:
    sgd = SGD(lr=0.1)
    network = linear()
    expected, _, _ = by_hand(batches(2), sgd)

    fit(network, Fit(START, batches(6), squares, sgd, Seed(0)))  # another job of the same network leaves nothing behind
    fitted = fit(network, Fit(START, batches(2), squares, sgd, Seed(0), memory))

    np.testing.assert_allclose(vector_of(fitted.weights), expected, rtol=1e-10, atol=1e-12)


def test_training_leaves_the_job_alone() -> None:
    memory = {"momentum": torch.ones(8, dtype=torch.float64)}
    start = {name: tensor.clone() for name, tensor in START.items()}
    network = linear()

    fitted = fit(network, Fit(start, batches(), squares, SGD(lr=0.1), Seed(0), memory))
    kept = {name: tensor.clone() for name, tensor in fitted.weights.items()}
    kept_momentum = fitted.memory["momentum"].clone()
    fit(network, Fit(start, batches(), squares, SGD(lr=0.2), Seed(0), fitted.memory))

    assert memory["momentum"].tolist() == [1.0] * 8
    assert all(torch.equal(start[name], START[name]) for name in START)
    assert all(torch.equal(fitted.weights[name], tensor) for name, tensor in kept.items())
    assert torch.equal(fitted.memory["momentum"], kept_momentum)


def test_facts_are_means_over_the_steps() -> None:
    sizes = iter([1.0, 2.0, 6.0])

    def loss(network: Network, batch: Pairs) -> dict[str, Tensor]:
        return {"loss": 0 * network(batch.inputs).sum(), "size": torch.tensor(next(sizes)), "rows": torch.tensor(8)}

    fitted = fit(linear(), Fit(START, batches(3), loss, PLAIN, Seed(0)))

    assert fitted.terms == {"loss": 0.0, "size": 3.0, "rows": 8.0}  # (1 + 2 + 6) / 3


def test_without_batches_nothing_moves() -> None:
    fitted = fit(linear(), Fit(START, [], squares, SGD(lr=0.1), Seed(0)))

    assert all(torch.equal(fitted.weights[name], START[name]) for name in START)
    assert fitted.memory == {}
    assert fitted.terms == {}


def test_without_batches_the_memory_stays() -> None:
    memory = {"momentum": torch.arange(8.0, dtype=torch.float64)}

    fitted = fit(linear(), Fit(START, [], squares, SGD(lr=0.1), Seed(0), memory))

    assert fitted.memory["momentum"].tolist() == list(range(8))


def test_the_model_trains_in_training_mode() -> None:
    network = linear()
    network.module.eval()
    modes = []

    def loss(network: Network, batch: Pairs) -> dict[str, Tensor]:
        modes.append(network.module.training)
        return squares(network, batch)

    fit(network, Fit(START, batches(2), loss, PLAIN, Seed(0)))

    assert modes == [True, True]


# What the model itself draws


def with_dropout() -> Network:
    torch.manual_seed(9)
    return Network(nn.Sequential(nn.Linear(3, 16), nn.Dropout(0.5), nn.Linear(16, 2)).double())


def dropout_weights(seed: Seed, global_seed: int, steps: list[Pairs] | Iterator[Pairs]) -> np.ndarray:
    network = with_dropout()
    start = network.weights()
    torch.manual_seed(global_seed)
    return vector_of(fit(network, Fit(start, steps, squares, SGD(lr=0.1), seed)).weights)


def test_dropout_depends_on_the_jobs_seed_only() -> None:
    reference = dropout_weights(Seed(1, ("client", 3)), 0, batches())
    elsewhere = dropout_weights(Seed(1, ("client", 3)), 12345, batches())
    other_client = dropout_weights(Seed(1, ("client", 4)), 0, batches())

    np.testing.assert_array_equal(reference, elsewhere)
    assert not np.array_equal(reference, other_client)


def test_the_global_random_state_is_unchanged() -> None:
    network = with_dropout()
    torch.manual_seed(77)
    before = torch.get_rng_state()

    fit(network, Fit(network.weights(), batches(), squares, SGD(lr=0.1), Seed(0)))

    assert torch.equal(torch.get_rng_state(), before)


def test_the_global_random_state_is_unchanged_by_a_loss_that_fails() -> None:
    network = with_dropout()
    torch.manual_seed(77)
    before = torch.get_rng_state()

    def fail(network: Network, batch: Pairs) -> dict[str, Tensor]:
        network(batch.inputs)
        raise ArithmeticError("diverged")

    with pytest.raises(ArithmeticError):
        fit(network, Fit(network.weights(), batches(), fail, SGD(lr=0.1), Seed(0)))

    assert torch.equal(torch.get_rng_state(), before)


# Annealing


@pytest.mark.parametrize("progress", [0.0, 0.1, 0.25, 0.5, 0.9, 1.0])
def test_cosine_annealing(progress: float) -> None:
    # (1 + cos 2x) / 2 = cos² x
    assert cosine(0.03, progress) == pytest.approx(0.03 * math.cos(math.pi * progress / 2) ** 2, abs=1e-17)


def test_cosine_annealing_at_its_ends_and_in_the_middle() -> None:
    assert cosine(0.03, 0.0) == 0.03
    assert cosine(0.03, 0.5) == pytest.approx(0.015, rel=1e-15)
    assert cosine(0.03, 1.0) == 0.0

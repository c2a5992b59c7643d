"""The server's step against the update rules written out in NumPy float64, over several rounds."""

import numpy as np
import pytest
import torch

from semifl.learning.server_optimizer import SERVER_OPTIMIZERS, Momentum, Past, ServerOptimizer
from semifl.learning.weights import Weights

START = np.array([1.0, -2.0, 0.5, 0.0])
# What the clients' mean lies away from the model in each round: large and small, with a change of sign and a zero.
DELTAS = [np.array([0.3, -0.002, 0.0, 2.0]), np.array([0.1, 0.5, 0.0, -1.0]), np.array([-0.2, 1e-5, 0.4, 0.1])]


def weights(vector: np.ndarray) -> Weights:
    return {"a": torch.from_numpy(vector[:2].copy()), "b": torch.from_numpy(vector[2:].copy()).reshape(2, 1)}


def vector(weights: Weights) -> np.ndarray:
    return np.concatenate([tensor.numpy().ravel() for tensor in weights.values()])


def run_rounds(step: ServerOptimizer) -> list[np.ndarray]:
    """The model after each round, every mean being `DELTAS` away from the model of its round."""
    W = weights(START)
    past = step.start(W)
    seen = []
    for delta in DELTAS:
        W, past = step.step(W, weights(vector(W) + delta), past)
        seen.append(vector(W))
    return seen


@pytest.mark.parametrize("lr", [1.0, 0.5, 2.0])
@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
def test_momentum(lr: float, momentum: float) -> None:
    W, v = START, np.zeros(4)
    expected = []
    for delta in DELTAS:  # SGD on the pseudo-gradient −lr·Δ, whose buffer starts at nothing
        v = momentum * v - lr * delta
        W = W - v
        expected.append(W)

    np.testing.assert_allclose(run_rounds(Momentum(lr, momentum)), expected, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("rule", ["adam", "yogi", "adagrad"])
@pytest.mark.parametrize(("lr", "beta1", "beta2", "tau"), [(0.1, 0.9, 0.99, 1e-3), (1.0, 0.0, 0.5, 0.1)])
def test_adaptive_rules(rule: str, lr: float, beta1: float, beta2: float, tau: float) -> None:
    # Reddi et al. 2021, Algorithm 2: m_0 = 0, v_0 = τ², no correction of the bias.
    W, m, v = START, np.zeros(4), np.full(4, tau**2)
    expected = []
    for delta in DELTAS:
        m = beta1 * m + (1 - beta1) * delta
        if rule == "adagrad":
            v = v + delta**2
        elif rule == "yogi":
            v = v - (1 - beta2) * delta**2 * np.sign(v - delta**2)
        else:
            v = beta2 * v + (1 - beta2) * delta**2
        W = W + lr * m / (np.sqrt(v) + tau)
        expected.append(W)

    keys = {"lr": lr, "beta1": beta1, "epsilon": tau} | ({} if rule == "adagrad" else {"beta2": beta2})
    np.testing.assert_allclose(run_rounds(SERVER_OPTIMIZERS[rule](**keys)), expected, rtol=1e-12, atol=1e-14)


def test_the_rules_differ() -> None:
    """Guards the tests above: a rule that is another one in disguise would pass for it."""
    ends = [
        run_rounds(cls(lr=0.1, **({} if cls is Momentum else {"beta1": 0.5})))[-1] for cls in SERVER_OPTIMIZERS.values()
    ]

    assert all(np.abs(a - b).max() > 1e-3 for n, a in enumerate(ends) for b in ends[:n])


def test_without_momentum_the_mean_is_the_next_model() -> None:
    mean = weights(START + 1 / 3)

    W, _ = Momentum(momentum=0.0).step(weights(START), mean, Past(weights(START), {}))

    assert all(torch.equal(W[name], mean[name]) for name in mean)


@pytest.mark.parametrize("rule", ["momentum", "adam", "yogi", "adagrad"])
def test_a_round_without_a_mean_changes_nothing(rule: str) -> None:
    step = SERVER_OPTIMIZERS[rule]()
    W = weights(START)
    W, past = step.step(W, weights(START + 1), step.start(W))

    assert step.step(W, None, past) == (W, past)


@pytest.mark.parametrize("rule", ["momentum", "adam", "yogi", "adagrad"])
def test_what_never_moves_stays_exactly(rule: str) -> None:
    """FedBN relies on it: where the mean is the server's own value, the step leaves it alone."""
    step = SERVER_OPTIMIZERS[rule](lr=0.3)
    W = weights(START)
    past = step.start(W)
    for _ in range(3):
        W, past = step.step(W, {"a": W["a"], "b": W["b"] + 1}, past)

    assert W["a"].tolist() == START[:2].tolist()
    assert (W["b"].numpy().ravel() > START[2:]).all()

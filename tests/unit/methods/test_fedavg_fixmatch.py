"""FedAvg + FixMatch: parallel training, half of the model the server's, one batch for FedSGD."""

import numpy as np
import pytest
import torch

from semifl.learning.weights import Weights
from testbed import Testbed


def mean(weights: list[Weights], name: str) -> np.ndarray:
    return np.mean([each[name].double().numpy() for each in weights], axis=0)


def test_half_of_the_model_is_the_servers_and_the_clients_share_the_rest() -> None:
    testbed = Testbed(
        name="fedavg_fixmatch", threshold=0.0, server_optimizer={"momentum": 0.0}, server_batch=3, client_batch=4
    )
    start = testbed.method.start(testbed.first)
    after = testbed.round(1, start)
    ((job, server),) = testbed.server.fits
    clients = testbed.trained()
    assert job.start is start.weights  # everybody starts from the same weights
    assert all(message.weights is start.weights for message, _ in testbed.clients.sent)
    assert len(clients) == 4
    for name, tensor in after.weights.items():
        expected = 0.5 * server.weights[name].double().numpy() + 0.5 * mean(clients, name)
        np.testing.assert_allclose(tensor.numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("step_from", ["sent", "server"])
def test_the_global_step_starts_from_the_model_that_was_sent_or_from_the_servers(step_from: str) -> None:
    testbed = Testbed(name="fedavg_fixmatch", threshold=0.0, server_optimizer={"momentum": 0.5}, step_from=step_from)
    state = testbed.method.start(testbed.first)
    velocity = {name: np.zeros(tensor.shape) for name, tensor in testbed.first.items()}
    for index in (1, 2):
        sent = state.weights
        state = testbed.round(index, state)
        ((_, server),) = testbed.server.fits
        clients = testbed.trained()
        for name, tensor in state.weights.items():
            W_s = server.weights[name].double().numpy()
            base = W_s if step_from == "server" else sent[name].double().numpy()
            velocity[name] = 0.5 * velocity[name] + (base - (0.5 * W_s + 0.5 * mean(clients, name)))
            np.testing.assert_allclose(tensor.numpy(), base - velocity[name], atol=1e-5)


def test_fedsgd_takes_one_step_everywhere() -> None:
    testbed = Testbed(name="fedavg_fixmatch", threshold=0.0, local_steps=1, client_batch=4, lr=0.1, weight_decay=0.0)
    steps = []
    fit = testbed.server.fit
    testbed.server.fit = lambda job: fit(job.__class__(**{**vars(job), "after_step": lambda network: steps.append(1)}))
    testbed.round(1, testbed.method.start(testbed.first))
    assert steps == [1]
    # A client's terms are means over its steps; one Nesterov step from rest moves by lr · 1.9 · gradient at most.
    losses = [reply.update.terms["loss"] for reply in testbed.clients.replies]
    assert all(np.isfinite(losses))


def test_clients_that_are_sure_of_nothing_still_answer_unchanged_but_for_weight_decay() -> None:
    testbed = Testbed(name="fedavg_fixmatch", threshold=1.0, weight_decay=0.0)
    testbed.round(1, testbed.method.start(testbed.first))
    for reply in testbed.clients.replies:
        assert reply.outcome == "trained"
        assert not any(tensor.any() for tensor in reply.update.change.values())


def test_without_clients_the_model_is_the_servers() -> None:
    testbed = Testbed(name="fedavg_fixmatch", server_optimizer={"momentum": 0.0})
    testbed.clients._size = 0
    after = testbed.round(1, testbed.method.start(testbed.first))
    ((_, server),) = testbed.server.fits
    assert all(torch.equal(after.weights[name], tensor) for name, tensor in server.weights.items())


@pytest.mark.parametrize("bad", [{"server_share": 1.5}, {"local_steps": -1}, {"threshold": 2.0}])
def test_bad_values_are_named(bad: dict) -> None:
    with pytest.raises(Exception, match=next(iter(bad))):
        Testbed(name="fedavg_fixmatch", **bad)

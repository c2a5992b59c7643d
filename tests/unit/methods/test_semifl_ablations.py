"""SemiFL without one of its parts: no fine-tuning (parallel), labels batch by batch, norms at home."""

import numpy as np
import pytest
import torch
from torch import nn

from semifl.data.epochs import UnlabeledBatch
from semifl.federation.memory import ClientMemory
from semifl.learning.network import Network
from semifl.learning.targets import Beliefs
from semifl.methods.semifl_ablated import SemiFLAblated
from testbed import Testbed


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("step_from", ["sent", "server"])
def test_parallel_training_starts_everyone_from_the_same_weights_and_gives_the_server_half(step_from: str) -> None:
    testbed = Testbed(
        name="semifl_ablated",
        threshold=0.0,
        labeling="global",
        step_from=step_from,
        server_optimizer={"momentum": 0.5},
        client_batch=4,
    )
    state = testbed.method.start(testbed.first)
    velocity = {name: np.zeros(tensor.shape) for name, tensor in testbed.first.items()}
    for index in (1, 2):
        before = state.weights
        state = testbed.round(index, state)
        ((job, server),) = testbed.server.fits
        assert job.start is before
        assert all(message.weights is before for message, _ in testbed.clients.sent)
        models = testbed.trained()
        for name, tensor in state.weights.items():
            W_s = server.weights[name].double().numpy()
            mean = 0.5 * W_s + 0.5 * np.mean([model[name].double().numpy() for model in models], axis=0)
            base = W_s if step_from == "server" else before[name].double().numpy()
            velocity[name] = 0.5 * velocity[name] + (base - mean)
            np.testing.assert_allclose(tensor.numpy(), base - velocity[name], atol=1e-5)


def test_parallel_training_without_a_confident_client_is_the_servers_alone() -> None:
    testbed = Testbed(name="semifl_ablated", threshold=1.0, labeling="global", server_optimizer={"momentum": 0.0})
    after = testbed.round(1, testbed.method.start(testbed.first))
    ((_, server),) = testbed.server.fits
    assert all(torch.equal(after.weights[name], tensor) for name, tensor in server.weights.items())


def test_the_loss_with_labels_of_the_batch_by_hand() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    network = Network(module)
    A, b = module[1].weight.detach().double().numpy(), module[1].bias.detach().double().numpy()
    rng = np.random.default_rng(1)
    weak, strong = (3 * rng.normal(size=(6, 4)) for _ in range(2))
    p = softmax(weak @ A.T + b)
    y, sure = p.argmax(axis=1), p.max(axis=1) >= 0.6
    assert 0 < sure.sum() < 6
    L_fix = -np.mean(np.log(softmax(strong @ A.T + b)[sure, y[sure]]))

    torch.manual_seed(7)  # the loss draws the partners first, then λ
    partner = torch.randperm(6).numpy()
    λ = torch.distributions.Beta(0.75, 0.75).sample().item()
    q = softmax((λ * weak + (1 - λ) * weak[partner]) @ A.T + b)[sure]
    L_mix = -λ * np.mean(np.log(q[range(len(q)), y[sure]])) - (1 - λ) * np.mean(
        np.log(q[range(len(q)), y[partner][sure]])
    )

    views = tuple(torch.tensor(view, dtype=torch.float32).view(6, 1, 2, 2) for view in (weak, strong))
    method, beliefs = SemiFLAblated(threshold=0.6, mix_weight=0.5), Beliefs(6)
    torch.manual_seed(7)
    terms = method.batch_loss(network, UnlabeledBatch(views, torch.arange(6)), beliefs)
    np.testing.assert_allclose(terms["fix"].item(), L_fix, rtol=1e-4)
    np.testing.assert_allclose(terms["mix"].item(), L_mix, rtol=1e-4)
    np.testing.assert_allclose(terms["loss"].item(), L_fix + 0.5 * L_mix, rtol=1e-4)
    assert beliefs._labels.tolist() == y.tolist()


def test_only_confident_pictures_go_through_batchnorm() -> None:
    """With BatchNorm it matters who is in the batch: by hand, the statistics are those of the confident ones."""
    torch.manual_seed(0)
    network = Network(nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4, affine=False), nn.Linear(4, 3)))
    network.module.train()
    A, b = (each.detach().double().numpy() for each in network.module[2].parameters())
    rng = np.random.default_rng(3)
    weak, strong = (2 * rng.normal(size=(8, 4)) + 1 for _ in range(2))

    def said(x: np.ndarray) -> np.ndarray:
        return softmax((x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5) @ A.T + b)

    p = said(weak)
    y, sure = p.argmax(axis=1), p.max(axis=1) >= 0.5
    assert 1 < sure.sum() < 8
    expected = -np.mean(np.log(said(strong[sure])[range(sure.sum()), y[sure]]))
    masked_afterwards = -np.mean(np.log(said(strong)[sure, y[sure]]))
    assert abs(expected - masked_afterwards) > 0.01
    views = tuple(torch.tensor(view, dtype=torch.float32).view(8, 1, 2, 2) for view in (weak, strong))
    method = SemiFLAblated(threshold=0.5, mix_weight=0.0)
    terms = method.batch_loss(network, UnlabeledBatch(views, torch.arange(8)), Beliefs(8))
    np.testing.assert_allclose(terms["loss"].item(), expected, rtol=1e-4)


def test_such_clients_never_abstain_and_unchanged_weights_are_averaged_in() -> None:
    testbed = Testbed(name="semifl_ablated", threshold=1.0, training="alternate", server_optimizer={"momentum": 0.0})
    testbed.round(1, testbed.method.start(testbed.first))
    ((job, _),) = testbed.server.fits  # which follows the clients
    sent = testbed.clients.sent[0][0].weights
    assert [reply.outcome for reply in testbed.clients.replies] == ["trained"] * 4
    for reply in testbed.clients.replies:
        assert not any(tensor.any() for tensor in reply.update.change.values())
    for name, tensor in job.start.items():
        np.testing.assert_allclose(tensor.numpy(), sent[name].numpy(), atol=1e-6)


def test_norms_that_stay_with_clients_are_the_servers_where_it_trains_beside_them() -> None:
    fields = {"threshold": 0.0, "local_norm": True, "lr": 0.1, "server_optimizer": {"momentum": 0.0}}
    testbed = Testbed(name="semifl_ablated", **fields)
    state = testbed.round(1, testbed.method.start(testbed.first))
    ((_, server),) = testbed.server.fits
    assert not torch.equal(server.weights["1.weight"], testbed.first["1.weight"])
    for each in ("1.weight", "1.bias"):
        np.testing.assert_allclose(state.weights[each].numpy(), server.weights[each].numpy(), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["semifl", "fedavg_fixmatch"])
def test_with_local_norms_a_client_keeps_its_own_and_sends_the_rest(name: str, tmp_path) -> None:
    testbed = Testbed(memory=ClientMemory(tmp_path), name=name, threshold=0.0, local_norm=True, lr=0.1)
    state = testbed.round(1, testbed.method.start(testbed.first))
    norms = {"1.weight", "1.bias"}  # of the toy model's BatchNorm
    for reply in testbed.clients.replies:
        assert set(reply.update.change) == set(testbed.first) - norms
    ((_, server),) = testbed.server.fits
    if name == "semifl":
        assert all(torch.equal(state.weights[each], server.weights[each]) for each in norms)
    testbed.place.memory.forget_after(1)
    kept = [testbed.place.memory.read(client, before=2) for client in range(4)]
    assert len({tuple(memory["norm 1.weight"].tolist()) for memory in kept}) > 1  # everyone's own

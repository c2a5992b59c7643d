"""FedMatch: σ and ψ, helpers, and each term of the client's loss by hand."""

import numpy as np
import pytest
import torch
from torch import nn

from semifl.data.epochs import UnlabeledBatch
from semifl.federation.memory import ClientMemory
from semifl.learning.network import Network
from semifl.learning.targets import Beliefs
from semifl.learning.training import SGD, Fit, fit
from semifl.learning.weights import Snapshot
from semifl.methods.fedmatch import (
    FedMatch,
    agreement,
    nearest,
    noise_output,
    remembered,
    sparse_bytes,
    to_remember,
)
from semifl.randomness import Seed
from testbed import Testbed


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def test_the_two_parts_add_up_to_the_models_own_start() -> None:
    state = FedMatch(psi_share=0.2).start({"w": torch.tensor([6.0, -3.0])})
    np.testing.assert_allclose(state.σ["w"].numpy(), [5.0, -2.5], rtol=1e-6)  # ψ = 0.2 σ and σ + ψ = W
    np.testing.assert_allclose(state.ψ["w"].numpy(), [1.0, -0.5], rtol=1e-6)


def test_the_server_moves_σ_alone_and_the_clients_ψ_alone() -> None:
    testbed = Testbed(name="fedmatch", threshold=0.0, lr=0.05, client_batch=4, server_batch=3, sparsity=0.0)
    before = testbed.method.start(testbed.first)
    after = testbed.round(1, before)
    ((_, server),) = testbed.server.fits
    for name in testbed.first:
        trained = server.weights[name].double().numpy() - before.ψ[name].double().numpy()
        np.testing.assert_allclose(after.σ[name].numpy(), trained, atol=1e-6)
        changes = [reply.update.change[name].double().numpy() for reply in testbed.clients.replies]
        np.testing.assert_allclose(
            after.ψ[name].numpy(), before.ψ[name].double().numpy() + np.mean(changes, axis=0), atol=1e-6
        )
    assert any(not torch.equal(after.σ[name], before.σ[name]) for name in before.σ)
    assert any(not torch.equal(after.ψ[name], before.ψ[name]) for name in before.ψ)


@pytest.fixture
def linear() -> tuple[Network, np.ndarray, np.ndarray]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    network = Network(module)
    return network, module[1].weight.detach().double().numpy().copy(), module[1].bias.detach().double().numpy().copy()


def test_every_term_of_the_clients_loss(linear: tuple[Network, np.ndarray, np.ndarray]) -> None:
    network, A, b = linear
    rng = np.random.default_rng(1)
    weak, strong = (3 * rng.normal(size=(6, 4)) for _ in range(2))
    σ = {"1.weight": rng.normal(size=(3, 4)), "1.bias": rng.normal(size=3)}
    helpers = [{"1.weight": rng.normal(size=(3, 4)), "1.bias": rng.normal(size=3)} for _ in range(2)]
    method = FedMatch(
        threshold=0.6, consistency_weight=0.3, agreement_weight=0.2, l1_weight=0.01, l2_weight=0.02, helpers=2
    )

    p = softmax(weak @ A.T + b)
    sure = p.max(axis=1) >= 0.6
    assert 0 < sure.sum() < 6
    said = [softmax(weak @ h["1.weight"].T + h["1.bias"]) for h in helpers]
    kl = np.mean([np.mean(np.sum(q[sure] * np.log(q[sure] / p[sure]), axis=1)) for q in said])
    votes = np.stack([np.eye(3)[each.argmax(axis=1)] for each in (p, *said)]).sum(axis=0)
    belief = np.mean([p, *said], axis=0)
    voted = np.array([max(range(3), key=lambda c: (votes[i, c], belief[i, c])) for i in range(6)])
    q = softmax(strong @ A.T + b)
    cross_entropy = -np.mean(np.log(q[sure, voted[sure]]))
    ψ = {"1.weight": A - σ["1.weight"], "1.bias": b - σ["1.bias"]}
    l1 = sum(np.abs(each).sum() for each in ψ.values())
    l2 = sum(np.square(σ[name] - ψ[name]).sum() for name in σ)

    def tensors(weights: dict) -> dict:
        return {name: torch.tensor(array, dtype=torch.float32) for name, array in weights.items()}

    batch = UnlabeledBatch(
        tuple(torch.tensor(view, dtype=torch.float32).view(6, 1, 2, 2) for view in (weak, strong)), torch.arange(6)
    )
    beliefs = Beliefs(6)
    terms = method.client_loss(network, batch, tensors(σ), [tensors(each) for each in helpers], beliefs)
    np.testing.assert_allclose(terms["consistency"].item(), 0.3 * kl, rtol=1e-4)
    np.testing.assert_allclose(terms["agreed"].item(), 0.2 * cross_entropy, rtol=1e-4)
    np.testing.assert_allclose(terms["regular"].item(), 0.01 * l1 + 0.02 * l2, rtol=1e-4)
    total = 0.3 * kl + 0.2 * cross_entropy + 0.01 * l1 + 0.02 * l2
    np.testing.assert_allclose(terms["loss"].item(), total, rtol=1e-4)
    assert beliefs._labels.tolist() == p.argmax(axis=1).tolist()


def test_without_a_confident_picture_only_the_regular_terms_are_left(
    linear: tuple[Network, np.ndarray, np.ndarray],
) -> None:
    network, _, _ = linear
    batch = UnlabeledBatch((torch.zeros(2, 1, 2, 2),) * 2, torch.arange(2))
    terms = FedMatch(threshold=1.0).client_loss(network, batch, network.weights(), [], Beliefs(2))
    assert set(terms) == {"loss", "regular"}


def test_the_majority_wins_and_ties_go_to_the_likelier_class() -> None:
    a = torch.tensor([[5.0, 0.0, 0.0], [3.0, 0.0, 0.0]])
    b = torch.tensor([[0.0, 4.0, 0.0], [0.0, 9.0, 0.0]])
    c = torch.tensor([[0.0, 4.0, 0.0], [0.0, 0.0, 0.1]])
    assert agreement([a, b, c]).tolist() == [1, 1]  # two votes of three; then a tie of three that b is surest of
    assert agreement([a]).tolist() == [0, 0]


def test_helpers_are_the_nearest_others_by_their_output_on_noise() -> None:
    peers = {client: (torch.tensor([float(client), 0.0]), {}) for client in (1, 4, 5, 9)}
    assert nearest(peers[4][0], [1, 5, 9], peers, 2) == [5, 1]
    assert nearest(peers[4][0], [9], peers, 2) == [9]
    assert nearest(peers[4][0], [], peers, 2) == []


def test_helpers_come_every_so_many_rounds_and_are_remembered_between(tmp_path) -> None:
    testbed = Testbed(
        memory=ClientMemory(tmp_path), name="fedmatch", threshold=0.0, lr=0.05, helper_interval=2, helper_pool=3
    )
    state = testbed.method.start(testbed.first)
    state = testbed.round(1, state)
    assert all(helpers == () for helpers in testbed.clients.sent[0][1].values())
    assert list(state.peers) == [1, 2, 3]  # the latest three of four
    before = state.peers
    state = testbed.round(2, state)
    sent = testbed.clients.sent[0][1]
    assert all(len(helpers) == 2 for helpers in sent.values())
    for client, helpers in sent.items():
        own = [ψ for peer, (_, ψ) in before.items() if peer == client]
        assert not any(helper is mine for helper in helpers for mine in own)  # nobody helps itself
    testbed.place.memory.forget_after(2)
    kept = remembered(testbed.place.memory.read(0, before=3))
    assert len(kept) == 2
    assert all(torch.equal(kept[0][name], tensor) for name, tensor in sent[0][0].items())
    testbed.round(3, state)
    assert all(helpers == () for helpers in testbed.clients.sent[0][1].values())
    # With the helpers it remembers a client computes their term, though none were sent.
    assert all("consistency" in reply.update.terms for reply in testbed.clients.replies)


def test_helpers_survive_the_memory() -> None:
    helpers = ({"a b": torch.ones(2), "c": torch.zeros(1)}, {"a b": torch.zeros(2), "c": torch.ones(1)})
    back = remembered(to_remember(helpers))
    assert [list(each) for each in back] == [["a b", "c"]] * 2
    assert torch.equal(back[1]["c"], torch.ones(1))
    assert remembered(None) == ()


def test_small_changes_are_not_sent_and_not_counted() -> None:
    change = {"a": torch.tensor([0.5, 1e-6, -0.2, 0.0]), "b": torch.tensor([1.0, 2.0])}
    thin = FedMatch(sparsity=1e-5).thin_out(change)
    assert thin["a"].tolist() == pytest.approx([0.5, 0.0, -0.2, 0.0])
    # Two entries of "a" at 4 + 4 bytes; "b" is cheaper whole, at 2 × 4.
    assert sparse_bytes(thin) == 2 * 8 + 2 * 4
    testbed = Testbed(name="fedmatch", threshold=0.0, sparsity=1e9)
    testbed.round(1, testbed.method.start(testbed.first))
    assert testbed.tally.bytes_up == 0


def test_the_released_variant_never_trains_what_is_not_a_convolution() -> None:
    testbed = Testbed(name="fedmatch", threshold=0.0, lr=0.1, trained="convolutions")
    state = testbed.round(1, testbed.method.start(testbed.first))
    for name, tensor in testbed.method.weights(state).items():
        moved = float((tensor - testbed.first[name]).abs().max())
        assert (moved > 1e-4) == (tensor.dim() == 4), name


@pytest.mark.parametrize("trained", ["all", "convolutions"])
def test_two_steps_of_the_server_with_decay_of_its_own_part_on_half_of_the_channels_by_hand(trained: str) -> None:
    """σ alone decays; the second half of every tensor has no gradient, but it has decay and momentum."""
    torch.manual_seed(0)
    network = Network(nn.Sequential(nn.Conv2d(1, 4, 2), nn.Flatten(), nn.Linear(4, 3)))
    W = {name: tensor.double().numpy() for name, tensor in network.weights().items()}
    rng = np.random.default_rng(0)
    ψ = {name: torch.tensor(rng.normal(size=array.shape), dtype=torch.float32) for name, array in W.items()}
    gradients = [{name: rng.normal(size=array.shape) for name, array in W.items()} for _ in range(2)]
    method = FedMatch(weight_decay=0.1, trained=trained, server_channels="half")

    def loss(network: Network, step: int) -> dict:
        parts = [(gradients[step][name], W) for name, W in network.module.named_parameters()]
        return {"loss": torch.stack([(torch.tensor(g, dtype=torch.float32) * W).sum() for g, W in parts]).sum()}

    def before_step(network: Network) -> None:
        method.own_gradient(network, other=ψ, half=True)

    sgd = SGD(lr=0.2, momentum=0.5, nesterov=False, weight_decay=0.0)
    fitted = fit(network, Fit(network.weights(), [0, 1], loss, sgd, Seed(0), before_step=before_step))
    for name, start in W.items():
        w, v = start.copy(), np.zeros_like(start)
        for g in gradients:
            own = g[name].copy()
            own[len(own) // 2 :] = 0
            own += 0.1 * (w - ψ[name].double().numpy())  # σ = W − ψ
            if trained == "convolutions" and start.ndim != 4:
                own[:] = 0
            v = 0.5 * v + own
            w -= 0.2 * v
        np.testing.assert_allclose(fitted.weights[name].numpy(), w, atol=1e-5)


def test_a_model_that_has_diverged_says_every_class_alike_and_ends_nobodys_round() -> None:
    testbed = Testbed(name="fedmatch", threshold=0.0)
    burst = {name: torch.full_like(each, torch.inf) for name, each in testbed.first.items()}
    said = noise_output(Snapshot(burst, testbed.server.statistics(testbed.first)), testbed.server)
    np.testing.assert_allclose(said.numpy(), [1 / 3] * 3, rtol=1e-6)
    peers = {0: (said, {}), 1: (torch.tensor([1.0, 0.0, 0.0]), {})}
    assert nearest(torch.tensor([0.9, 0.1, 0.0]), [0, 1], peers, 1) == [1]

"""Balanced: weights of labels, the loss of all, the server's steps, what travels; by hand or NumPy."""

import math
from copy import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from semifl.data.epochs import LabeledBatch
from semifl.data.mixtures import MixedBatch
from semifl.federation.recipe import supervised_loss
from semifl.federation.sites import ClientSite, statistics_of
from semifl.federation.tally import tensor_bytes
from semifl.federation.world import Round
from semifl.learning.batchnorm import Moments, layers, pool
from semifl.learning.network import Network
from semifl.learning.norm_correction import SHIFT, SQUARE
from semifl.learning.training import Fit, Fitted
from semifl.learning.weights import Snapshot
from semifl.methods.balanced import Balanced, Sent, at_home, shares
from semifl.models.wide_resnet import WideResNet
from semifl.randomness import Seed
from testbed import Testbed


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def test_the_weights_by_hand() -> None:
    """Confidences 0.5, 0.7, 0.9: mean 0.7, variance 0.08 / 3."""
    w = Balanced().weigh(torch.tensor([0.5, 0.7, 0.9]))
    assert w.tolist() == pytest.approx([math.exp(-(0.2**2) / (2 * 0.08 / 3)), 1.0, 1.0], rel=1e-5)
    assert Balanced().weigh(torch.full((4,), 0.4)).tolist() == [1.0] * 4  # nobody is below the mean


def test_the_loss_by_hand() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).double()
    A, b = module[1].weight.detach().numpy(), module[1].bias.detach().numpy()
    rng = np.random.default_rng(1)
    strong, mixed = rng.normal(size=(2, 5, 4))
    w, partner = rng.uniform(size=5), rng.uniform(size=5)
    first, second = np.eye(3)[[0, 2, 1, 0, 2]] * w[:, None], np.eye(3)[[1, 1, 0, 2, 2]] * partner[:, None]

    L_strong = -(first * np.log(softmax(strong @ A.T + b))).sum(axis=1).mean()
    L_mix = -((0.3 * first + 0.7 * second) * np.log(softmax(mixed @ A.T + b))).sum(axis=1).mean()

    pictures = [torch.tensor(each).view(5, 1, 2, 2) for each in (strong, mixed)]
    batch = MixedBatch(*pictures, torch.tensor(first), torch.tensor(second), torch.tensor(0.3, dtype=torch.float64))
    terms = Balanced().loss(Network(module), batch)
    assert terms["strong"].item() == pytest.approx(L_strong)
    assert terms["mix"].item() == pytest.approx(L_mix)
    assert terms["loss"].item() == pytest.approx(L_strong + L_mix)

    offset = np.array([0.5, -2.0, 0.1])
    L_strong = -(first * np.log(softmax(strong @ A.T + b + offset))).sum(axis=1).mean()
    L_mix = -((0.3 * first + 0.7 * second) * np.log(softmax(mixed @ A.T + b + offset))).sum(axis=1).mean()
    adjusted = Balanced().loss(Network(module), batch, torch.tensor(offset))
    assert (adjusted["strong"].item(), adjusted["mix"].item()) == pytest.approx((L_strong, L_mix))


def test_shares_by_hand() -> None:
    """Weights 1 and 0.5 of the first class and 0.5 of the third; a tenth more is spread over the four."""
    y = torch.tensor([[1.0, 0, 0, 0], [0.5, 0, 0, 0], [0, 0, 0.5, 0]])
    expected = np.array([0.75 + 0.025, 0.025, 0.25 + 0.025, 0.025]) / 1.1
    assert shares(y).tolist() == pytest.approx(expected.tolist())


def test_a_client_is_offset_by_what_it_has_more_of_than_the_server() -> None:
    """Its pseudo-labels all of one class, the server's labels of two: log shares, by hand."""
    testbed = Testbed(name="balanced", statistics="server")
    π = shares(torch.eye(3)[[0, 0, 0, 1]])
    sent = Sent(Snapshot(testbed.first, testbed.server.statistics(testbed.first)), π, π)
    client = ClientSite(testbed.place, 1, Seed(0).under("client", 1), None)
    client.outputs = lambda model, view: torch.tensor([[0.0, 0.0, 9.0]]).expand(len(view), 3)
    seen = []
    client.fit = lambda job: seen.append(job.loss.keywords["offset"]) or Fitted(testbed.first, {}, {})
    testbed.method.client_update(client, sent, Round(1, 0.0, Seed(0)))
    even = 0.1 / 3
    expected = [math.log(even / (0.75 + even)), math.log(even / (0.25 + even)), math.log((1 + even) / even)]
    assert seen[0].tolist() == pytest.approx(expected, rel=1e-5)


def test_a_client_labels_by_what_it_has_more_of_than_others_by_hand() -> None:
    """Four pictures of a client, two classes; everybody else has as many of both, ν = (½, ½).

    First labels: 0, 0, 0, 1, of which it has 3 and 1 and five of each as others have them: shares 8/14 and 6/14, odds
    times 8/6. The last picture, 0.45 to 0.55, has odds of 1.09 then: it is of class 0, too. Now shares are 9/14 and
    5/14, and no label changes any more.
    """
    p = torch.tensor([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.45, 0.55]])
    q = at_home(p, torch.tensor([0.5, 0.5]))
    odds = np.array([9, 4, 1.5, 9 / 11]) * 9 / 5
    assert q[:, 0].tolist() == pytest.approx((odds / (1 + odds)).tolist(), rel=1e-5)


def test_a_client_like_all_others_labels_as_the_model_does() -> None:
    p = torch.tensor([[0.9, 0.1], [0.3, 0.7], [0.2, 0.8], [0.4, 0.6]])
    assert torch.allclose(at_home(p, torch.tensor([0.25, 0.75])), p)


def test_what_the_model_gives_to_clients_is_learned_slowly_from_what_they_tell() -> None:
    """ν begins with the server's shares and moves a fifth of the way to the cohort's mean."""
    testbed = Testbed(name="balanced", server_batch=4, warmup_steps=0, server_steps=2)
    state = testbed.round(1, testbed.method.start(testbed.first))
    ((sent, _),) = testbed.clients.sent
    assert torch.equal(sent.ν, sent.π)
    told = np.array([reply.facts["said"] for reply in testbed.clients.replies], dtype=float)
    mean = (told / told.sum(axis=1, keepdims=True)).mean(axis=0)
    expected = 0.8 * sent.π.numpy() + 0.2 * (mean + 0.1 / 3) / 1.1
    assert state.predicted.tolist() == pytest.approx(expected.tolist(), rel=1e-5)

    testbed.round(2, state)
    ((sent, _),) = testbed.clients.sent
    assert torch.equal(sent.ν, state.predicted)


def test_sites_that_keep_their_histograms_leave_the_servers_shares() -> None:
    testbed = Testbed(name="balanced", server_batch=4, warmup_steps=0, server_steps=2)
    each = testbed.clients.each
    testbed.clients.each = lambda *given: (reply._replace(facts={}) for reply in each(*given))
    state = testbed.round(1, testbed.method.start(testbed.first))
    assert len(state.predicted) == 0


@pytest.mark.parametrize(
    ("server_batch", "server_steps", "warmup_steps", "expected"),
    [(4, 7, 10, (18, 8)), (4, 1, 0, (4, 4)), (5, 7, 10, (17, 7))],
)
def test_the_server_takes_its_steps_however_few_its_labels(
    server_batch: int, server_steps: int, warmup_steps: int, expected: tuple[int, int]
) -> None:
    """Six labels in batches of four are two steps an epoch, of which there are two at least; in batches of five one."""
    fields = {
        "server_batch": server_batch,
        "server_epochs": 2,
        "server_steps": server_steps,
        "warmup_steps": warmup_steps,
    }
    testbed = Testbed(name="balanced", **fields)
    taken = []

    def fit(job: Fit) -> Fitted:
        batches = list(job.batches)
        taken.append(len(batches))
        return type(testbed.server).fit(testbed.server, replace(job, batches=batches))

    server = copy(testbed.server)
    server.fit = fit
    for index in (1, 2):
        t = Round(index, 0.0, Seed(0).under("round", index))
        testbed.method.server_update(server.at(t), testbed.first, t)
    assert tuple(taken) == expected


def test_the_server_learns_weak_views_beside_everybodys_loss_by_hand() -> None:
    """A linear model: cross-entropy of two weak views, by NumPy, is added to the sum of the other two."""
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 3))
    rng = np.random.default_rng(7)
    plain, strong, mixed = (rng.random((2, 1, 2, 2), dtype=np.float32) for _ in range(3))
    first, second = np.eye(3, dtype=np.float32)[[0, 2]], np.eye(3, dtype=np.float32)[[1, 2]]
    views = MixedBatch(*(torch.tensor(each) for each in (strong, mixed, first, second)), torch.tensor(0.25))
    terms = Balanced().server_loss(
        supervised_loss, Network(module), (LabeledBatch(torch.tensor(plain), torch.tensor([2, 1])), views)
    )
    A, b = (each.detach().numpy() for each in module[1].parameters())
    p = softmax(plain.reshape(2, 4) @ A.T + b)
    assert terms["weak"].item() == pytest.approx(-np.log(p[[0, 1], [2, 1]]).mean(), rel=1e-5)
    total = sum(terms[name].item() for name in ("weak", "strong", "mix"))
    assert terms["loss"].item() == pytest.approx(total, rel=1e-6)


def test_the_model_of_a_round_is_the_servers_with_statistics_as_clients_just_told() -> None:
    testbed = Testbed(name="balanced", server_batch=4, warmup_steps=0, server_steps=2)
    state = testbed.round(1, testbed.method.start(testbed.first))
    ((_, fitted),) = testbed.server.fits
    for name, tensor in testbed.model.weights.items():
        assert torch.equal(tensor, fitted.weights[name])
    ((layer, own),) = testbed.server.statistics(fitted.weights).items()
    moved = own.mean + state.correction[SHIFT + layer].double() * own.var.sqrt()
    torch.testing.assert_close(testbed.model.stats[layer].mean.double(), moved, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(moved, own.mean)


def test_statistics_ride_along_and_are_used_from_the_next_round_on() -> None:
    testbed = Testbed(name="balanced", server_batch=4, warmup_steps=0, server_steps=2)
    state = testbed.round(1, testbed.method.start(testbed.first))
    (((sent, *_), _),) = testbed.clients.sent
    own = testbed.server.statistics(sent.weights)
    for name, each in own.items():  # nobody has told yet
        torch.testing.assert_close(sent.stats[name].mean, each.mean)

    (layer,) = own
    parts = [
        statistics_of(testbed.place, sent.weights, testbed.place.images[testbed.place.holdings[client]])
        for client in range(4)
    ]
    shift = sum((part[layer].mean - own[layer].mean) / own[layer].var.sqrt() for part in parts) / 4
    torch.testing.assert_close(state.correction[SHIFT + layer].double(), shift, rtol=1e-4, atol=1e-5)

    testbed.round(2, state)
    (((sent, *_), _),) = testbed.clients.sent
    own = testbed.server.statistics(sent.weights)[layer]
    torch.testing.assert_close(sent.stats[layer].mean, own.mean + state.correction[SHIFT + layer] * own.var.sqrt())
    torch.testing.assert_close(sent.stats[layer].var, own.var * state.correction[SQUARE + layer])


def test_statistics_stay_at_home_if_they_must() -> None:
    testbed = Testbed(name="balanced", statistics="server", server_batch=4, warmup_steps=0, server_steps=2)
    state = testbed.round(1, testbed.method.start(testbed.first))
    (((sent, *_), _),) = testbed.clients.sent
    assert state.correction == {}
    assert all(set(reply.update.change) == set(sent.weights) for reply in testbed.clients.replies)


def test_everybody_can_be_asked_instead() -> None:
    testbed = Testbed(name="balanced", statistics="all", server_batch=4, warmup_steps=0, server_steps=2)
    state = testbed.round(1, testbed.method.start(testbed.first))
    (((sent, *_), _),) = testbed.clients.sent
    everybody = pool([testbed.server.statistics(sent.weights), *testbed.clients.statistics(sent.weights, range(4))])
    for name, each in everybody.items():
        torch.testing.assert_close(sent.stats[name].mean, each.mean)
        torch.testing.assert_close(sent.stats[name].var, each.var)
    assert state.correction == {}


def test_a_round_moves_hardly_more_bytes_than_semifl() -> None:
    """SemiFL sends weights and statistics, and gets weights: for the paper's network."""
    module = WideResNet(28, 2).build(3, 32, 10)
    weights = {name: each.detach() for name, each in module.named_parameters()}
    stats = {
        name: Moments(1, torch.zeros(len(each.weight)).double(), torch.ones(len(each.weight)).double())
        for name, each in layers(module).items()
    }
    model = Snapshot(weights, stats)
    semifl = tensor_bytes(model) + tensor_bytes(weights)
    assert (
        tensor_bytes(model) + tensor_bytes(Balanced().sent_weights(Sent(model, torch.zeros(10), torch.zeros(10))))
        < 1.01 * semifl
    )


def test_rare_labels_can_weigh_as_much_as_common_ones() -> None:
    """Three labels of a class and one of another: weights 4 / (2 · 3) and 4 / (2 · 1)."""
    testbed = Testbed(
        name="balanced", class_weights=True, warmup_steps=0, server_steps=1, server_epochs=1, server_batch=8
    )
    server = testbed.server
    server.images, server.labels = server.images[:4], torch.tensor([0, 0, 0, 2])
    seen = []
    server.fit = lambda job: seen.extend(job.batches) or Fitted(testbed.first, {}, {})
    t = Round(1, 0.0, Seed(0).under("round", 1))
    testbed.method.server_update(server, testbed.first, t)
    ((_, batch),) = seen
    assert sorted(batch.fix_labels.sum(dim=1).tolist()) == pytest.approx([2 / 3, 2 / 3, 2 / 3, 2.0])


@pytest.mark.parametrize(("class_weights", "learned"), [(False, (0.75, 0.0, 0.25)), (True, (0.5, 0.0, 0.5))])
def test_clients_are_offset_from_the_shares_that_the_server_learned_from(class_weights, learned) -> None:
    """ν are the labels' own shares in any case, before anybody told: of three labels of a class and one of another."""
    testbed = Testbed(name="balanced", class_weights=class_weights, warmup_steps=0, server_steps=1, server_epochs=1)
    testbed.server.images, testbed.server.labels = testbed.server.images[:4], torch.tensor([0, 0, 0, 2])
    testbed.round(1, testbed.method.start(testbed.first))
    ((sent, _),) = testbed.clients.sent
    even = 0.1 / 3
    assert sent.π.tolist() == pytest.approx([(share + even) / 1.1 for share in learned], rel=1e-5)
    assert sent.ν.tolist() == pytest.approx([(share + even) / 1.1 for share in (0.75, 0.0, 0.25)], rel=1e-5)

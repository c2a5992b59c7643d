"""ReMixMatch against NumPy; only the draws of Mixup and rotation are shared with the program, by their seed."""

import numpy as np
import pytest
import torch
from torch import nn

from semifl.learning.network import Network
from semifl.objectives.remixmatch import ReMixMatch, align, remember, rotate
from unit.objectives.by_hand import (
    Array,
    array,
    assert_gradient,
    cross_entropies,
    linear_network,
    logits,
    one_hot,
    pair,
    parameters,
    sharpened,
    softmax,
)


@pytest.mark.parametrize(("labeled", "unlabeled", "K"), [(4, 4, 2), (5, 3, 1), (2, 6, 3)])
def test_the_four_losses(labeled: int, unlabeled: int, K: int) -> None:
    network, batch = linear_network(), pair(labeled, unlabeled, views=K + 1)
    objective = ReMixMatch(
        strong_views=K,
        temperature=0.4,
        mix_beta=0.8,
        unlabeled_weight=3.0,
        anchor_weight=0.7,
        rotation_weight=0.9,
        ramp_up=0.5,
        window=4,
    )
    W = parameters(network)
    memory = objective.start(network.weights(), classes=3)
    memory["predicted"] = torch.tensor([[0.2, 0.3, 0.5], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6], [0.5, 0.3, 0.2]])
    memory["labeled"] = torch.tensor([4.0, 1.0, 5.0])
    generator = torch.Generator().manual_seed(1)
    head, bias = torch.randn(4, 4, generator=generator), torch.randn(4, generator=generator)
    memory["rotation.weight"], memory["rotation.bias"] = head.clone(), bias.clone()

    torch.manual_seed(11)
    terms = objective.loss(network, batch, memory, progress=0.1)

    total = labeled + (K + 1) * unlabeled
    torch.manual_seed(11)
    λ = array(torch.distributions.Beta(0.8, 0.8).sample((total,)))
    partner = torch.randperm(total).numpy()
    turns = torch.randint(4, (unlabeled,)).numpy()
    λ = np.maximum(λ, 1 - λ)[:, None]

    weak, *strong = (array(view) for view in batch.unlabeled.views)
    shares = np.array([0.4, 0.1, 0.5]) / np.array([0.25, 0.35, 0.4])  # of labels over those of predictions
    said = softmax(logits(W, weak)) * shares
    q = sharpened(said / said.sum(axis=1, keepdims=True), 0.4)
    x = np.concatenate([part.reshape(len(part), -1) for part in (array(batch.labeled.images), *strong, weak)])
    y = np.concatenate([one_hot(batch.labeled.labels), *[q] * (K + 1)])
    x, y = λ * x + (1 - λ) * x[partner], λ * y + (1 - λ) * y[partner]
    turned = np.stack([np.rot90(picture[0], r) for picture, r in zip(strong[0], turns, strict=True)])
    rotation = turned.reshape(unlabeled, -1) @ array(head).T + array(bias)

    def mixed_labeled(W: Array) -> float:
        return cross_entropies(logits(W, x[:labeled]), y[:labeled]).mean()

    def mixed_unlabeled(W: Array) -> float:
        return cross_entropies(logits(W, x[labeled:]), y[labeled:]).mean()

    def anchored(W: Array) -> float:
        return cross_entropies(logits(W, strong[0]), q).mean()

    L_r = cross_entropies(rotation, one_hot(turns, 4)).mean()  # whose features are the pixels: W has no part in it

    def expected(W: Array) -> float:
        return mixed_labeled(W) + 0.2 * (3.0 * mixed_unlabeled(W) + 0.7 * anchored(W)) + 0.9 * L_r

    found = [terms[f"{name}_loss"].item() for name in ("labeled", "unlabeled", "anchor", "rotation")]
    assert found == pytest.approx([mixed_labeled(W), mixed_unlabeled(W), anchored(W), L_r], rel=1e-4)
    assert terms["loss"].item() == pytest.approx(expected(W), rel=1e-4)
    assert_gradient(network, terms["loss"], expected)

    # The rotation head takes a plain step on its own part of the loss.
    objective.after_step(network, memory)
    slope = 0.9 * (softmax(rotation) - one_hot(turns, 4)) / unlabeled
    weight = array(head) - 0.1 * slope.T @ turned.reshape(unlabeled, -1)
    np.testing.assert_allclose(array(memory["rotation.weight"]), weight, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(array(memory["rotation.bias"]), array(bias) - 0.1 * slope.sum(axis=0), rtol=1e-4)
    assert not any(tensor.requires_grad for tensor in memory.values())


def test_alignment_gives_predictions_the_shares_of_the_labels() -> None:
    memory = {"labeled": torch.tensor([1.0, 3.0]), "predicted": torch.tensor([[0.4, 0.6], [0.6, 0.4]])}
    found = align(torch.tensor([[0.5, 0.5], [0.8, 0.2]]), memory)
    # (0.5 · 0.25/0.5, 0.5 · 0.75/0.5) = (0.25, 0.75); (0.8 · 0.5, 0.2 · 1.5) = (0.4, 0.3)
    np.testing.assert_allclose(found.numpy(), [[0.25, 0.75], [4 / 7, 3 / 7]], rtol=1e-5)


def test_it_remembers_the_last_batches_of_predictions_and_every_label() -> None:
    memory = ReMixMatch(window=2).start({}, classes=2)
    for p in (0.1, 0.3, 0.7):
        remember(torch.tensor([[p, 1 - p], [p + 0.2, 0.8 - p]]), torch.tensor([0, 1, 1]), memory)
    np.testing.assert_allclose(memory["predicted"].numpy(), [[0.4, 0.6], [0.8, 0.2]], rtol=1e-6)
    assert memory["labeled"].tolist() == [1 + 3, 1 + 6]


def test_pictures_are_turned_by_the_angle_that_is_told() -> None:
    images = torch.arange(24.0).view(6, 1, 2, 2)
    torch.manual_seed(5)
    turned, r = rotate(images)
    for picture, found, quarters in zip(images.numpy(), turned.numpy(), r.tolist(), strict=True):
        np.testing.assert_array_equal(found[0], np.rot90(picture[0], quarters))
    assert len(set(r.tolist())) > 1


def test_the_rotation_head_learns_to_tell_angles_apart() -> None:
    """The pictures have one bright corner, which each turn moves to another place: a linear head can tell them all."""
    batch = pair(labeled=4, unlabeled=16, views=2)
    corner = torch.tensor([[[3.0, 0.0], [0.0, 0.0]]]).expand(16, 1, 2, 2)
    batch = batch._replace(unlabeled=batch.unlabeled._replace(views=(corner, corner)))
    network, objective = linear_network(), ReMixMatch(strong_views=1)
    memory = objective.start(network.weights(), classes=3)
    losses = []
    torch.manual_seed(0)
    for _ in range(60):
        terms = objective.loss(network, batch, memory, progress=0.0)
        terms["loss"].backward()
        objective.after_step(network, memory)
        losses.append(terms["rotation_loss"].item())
    assert losses[0] == pytest.approx(np.log(4))
    assert losses[-1] < 0.2


def test_telling_angles_apart_trains_the_features_and_not_the_classifier() -> None:
    torch.manual_seed(0)
    network = Network(nn.Sequential(nn.Flatten(), nn.Linear(4, 5), nn.Linear(5, 3)))
    memory = {"rotation.weight": torch.randn(4, 5), "rotation.bias": torch.zeros(4)}
    ReMixMatch().rotation_loss(network, torch.randn(8, 1, 2, 2), memory).backward()
    _, features, classifier = network.module
    assert features.weight.grad.abs().sum() > 0
    assert classifier.weight.grad.abs().sum() == 0


def test_it_asks_for_one_weak_view_and_k_strong_ones() -> None:
    assert ReMixMatch(strong_views=3).views == ("weak", "strong", "strong", "strong")

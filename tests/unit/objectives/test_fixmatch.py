"""FixMatch against NumPy."""

import pytest
import torch
from torch import nn

from semifl.learning.network import Network
from semifl.objectives.fixmatch import FixMatch
from unit.objectives.by_hand import (
    Array,
    assert_gradient,
    cross_entropies,
    labeled_loss,
    linear_network,
    logits,
    one_hot,
    pair,
    parameters,
    softmax,
)


def test_confident_labels_of_weak_views_teach_strong_ones() -> None:
    network, batch = linear_network(), pair(labeled=5, unlabeled=8, views=2)
    objective = FixMatch(threshold=0.55, unlabeled_weight=2.0)

    terms = objective.loss(network, batch, {}, progress=0.0)

    W = parameters(network)
    weak, strong = batch.unlabeled.views
    said = softmax(logits(W, weak))
    kept = said.max(axis=1) >= 0.55
    assert 0 < kept.sum() < 8

    def unlabeled(W: Array) -> float:
        return (cross_entropies(logits(W, strong), one_hot(said.argmax(axis=1))) * kept).sum() / 8  # not by kept.sum()

    def expected(W: Array) -> float:
        return labeled_loss(W, batch) + 2.0 * unlabeled(W)

    assert terms["labeled_loss"].item() == pytest.approx(labeled_loss(W, batch), rel=1e-5)
    assert terms["unlabeled_loss"].item() == pytest.approx(unlabeled(W), rel=1e-5)
    assert terms["mask"].item() == pytest.approx(kept.mean())
    assert terms["loss"].item() == pytest.approx(expected(W), rel=1e-5)
    assert_gradient(network, terms["loss"], expected)


def test_the_unlabeled_half_tells_what_it_believes() -> None:
    network, batch = linear_network(), pair(labeled=5, unlabeled=8, views=2)
    found = FixMatch(threshold=0.55).consistency(network, *batch.unlabeled.views)

    said = softmax(logits(parameters(network), batch.unlabeled.views[0]))
    assert found.pseudo.labels.tolist() == said.argmax(axis=1).tolist()
    assert found.pseudo.confidence.tolist() == pytest.approx(said.max(axis=1).tolist(), rel=1e-5)
    assert not found.pseudo.confidence.requires_grad


def test_nobody_confident_is_a_loss_of_zero() -> None:
    network, batch = linear_network(), pair(labeled=5, unlabeled=8, views=2)
    found = FixMatch(threshold=1.0).consistency(network, *batch.unlabeled.views)
    assert (found.loss.item(), found.mask.item()) == (0, 0)


def test_each_kind_of_picture_has_its_own_batch_statistics() -> None:
    module = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(4), nn.Linear(4, 3))
    sizes = []
    module[1].register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    network = Network(module)
    network.module.train()
    torch.manual_seed(0)

    FixMatch().loss(network, pair(labeled=5, unlabeled=8, views=2), {}, progress=0.0)

    assert sizes == [5, 8, 8]

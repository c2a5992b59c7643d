"""Cross-entropy against NumPy."""

import pytest

from semifl.objectives.supervised import Supervised
from unit.objectives.by_hand import (
    CLASSES,
    Array,
    assert_gradient,
    cross_entropies,
    labeled_loss,
    linear_network,
    logits,
    one_hot,
    pair,
    parameters,
)


def test_it_is_the_cross_entropy_of_the_labels() -> None:
    network, batch = linear_network(), pair(labeled=7, unlabeled=0, views=0)
    terms = Supervised().loss(network, batch, {}, progress=0.0)
    assert terms["loss"].item() == pytest.approx(labeled_loss(parameters(network), batch), rel=1e-5)
    assert_gradient(network, terms["loss"], lambda W: labeled_loss(W, batch))


def test_smoothing_spreads_a_share_of_each_label_over_all_classes() -> None:
    network, batch = linear_network(), pair(labeled=7, unlabeled=0, views=0)

    def smoothed(W: Array) -> float:
        targets = 0.8 * one_hot(batch.labeled.labels) + 0.2 / CLASSES
        return float(cross_entropies(logits(W, batch.labeled.images), targets).mean())

    terms = Supervised(smoothing=0.2).loss(network, batch, {}, progress=0.0)

    assert terms["loss"].item() == pytest.approx(smoothed(parameters(network)), rel=1e-5)
    assert_gradient(network, terms["loss"], smoothed)

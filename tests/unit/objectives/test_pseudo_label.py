"""Pseudo-Label against NumPy."""

import numpy as np
import pytest
import torch

from semifl.objectives.pseudo_label import PseudoLabel
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


@pytest.mark.parametrize("threshold", [0.0, 0.6])
def test_it_trains_on_its_own_labels(threshold: float) -> None:
    network, batch = linear_network(), pair(labeled=5, unlabeled=6, views=1)
    objective = PseudoLabel(unlabeled_weight=2.0, ramp_from=0.0, ramp_to=0.5, threshold=threshold)

    terms = objective.loss(network, batch, {}, progress=0.25)

    (view,) = batch.unlabeled.views
    said = softmax(logits(parameters(network), view))
    labels, kept = one_hot(said.argmax(axis=1)), said.max(axis=1) >= threshold
    assert threshold == 0 or 0 < kept.sum() < 6  # or the threshold would be tested on nothing

    def unlabeled(W: Array) -> float:
        return (cross_entropies(logits(W, view), labels) * kept).sum() / 6

    def expected(W: Array) -> float:
        return labeled_loss(W, batch) + 2.0 * 0.5 * unlabeled(W)

    W = parameters(network)
    assert terms["unlabeled_loss"].item() == pytest.approx(unlabeled(W), rel=1e-5)
    assert terms["mask"].item() == pytest.approx(kept.mean())
    assert terms["loss"].item() == pytest.approx(expected(W), rel=1e-5)
    assert_gradient(network, terms["loss"], expected)


@pytest.mark.parametrize(("progress", "α"), [(0.0, 0), (0.1, 0), (0.35, 1.5), (0.6, 3), (0.9, 3)])
def test_alpha_is_nothing_then_a_line_then_alpha_f(progress: float, α: float) -> None:
    terms = PseudoLabel().loss(linear_network(), pair(labeled=5, unlabeled=4, views=1), {}, progress)
    found = (terms["loss"] - terms["labeled_loss"]).item() / terms["unlabeled_loss"].item()
    np.testing.assert_allclose(found, α, atol=1e-5)


def test_the_ramp_does_not_end_before_it_begins() -> None:
    with pytest.raises(ValueError, match="ramp_to must not lie before ramp_from"):
        PseudoLabel(ramp_from=0.5, ramp_to=0.4)


def test_the_labels_are_of_the_network_as_it_is_now() -> None:
    network, batch = linear_network(), pair(labeled=5, unlabeled=4, views=1)
    with torch.no_grad():
        network.module[1].weight.zero_()
        network.module[1].bias.copy_(torch.tensor([0.0, 100.0, 0.0]))  # sure of the second class, whatever it sees
    assert PseudoLabel().loss(network, batch, {}, progress=1.0)["unlabeled_loss"].item() == pytest.approx(0, abs=1e-6)

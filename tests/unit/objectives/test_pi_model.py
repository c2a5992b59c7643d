"""Π-model against NumPy."""

import math

import numpy as np
import pytest

from semifl.objectives.pi_model import PiModel
from unit.objectives.by_hand import (
    Array,
    assert_gradient,
    labeled_loss,
    linear_network,
    logits,
    pair,
    parameters,
    softmax,
)


def test_it_asks_two_views_to_agree() -> None:
    network, batch = linear_network(), pair(labeled=5, unlabeled=4, views=2)
    objective = PiModel(unlabeled_weight=7.0, ramp_up=0.5)

    terms = objective.loss(network, batch, {}, progress=0.25)

    def disagreement(W: Array) -> float:
        z, z_tilde = (softmax(logits(W, view)) for view in batch.unlabeled.views)
        return ((z - z_tilde) ** 2).sum() / (4 * 3)  # mean over pictures and classes

    def expected(W: Array) -> float:
        return labeled_loss(W, batch) + 7.0 * math.exp(-5 * 0.5**2) * disagreement(W)

    W = parameters(network)
    assert terms["labeled_loss"].item() == pytest.approx(labeled_loss(W, batch), rel=1e-5)
    assert terms["unlabeled_loss"].item() == pytest.approx(disagreement(W), rel=1e-5)
    assert terms["loss"].item() == pytest.approx(expected(W), rel=1e-5)
    assert_gradient(network, terms["loss"], expected)  # which flows through both views


def test_views_that_agree_cost_nothing() -> None:
    batch = pair(labeled=5, unlabeled=4, views=1)
    same = batch._replace(unlabeled=batch.unlabeled._replace(views=batch.unlabeled.views * 2))
    assert PiModel().loss(linear_network(), same, {}, progress=1.0)["unlabeled_loss"].item() == 0


@pytest.mark.parametrize(("progress", "weight"), [(0.0, math.exp(-5)), (0.2, math.exp(-1.25)), (0.4, 1.0), (1.0, 1.0)])
def test_the_weight_ramps_up(progress: float, weight: float) -> None:
    network, batch = linear_network(), pair(labeled=5, unlabeled=4, views=2)
    terms = PiModel(unlabeled_weight=1.0, ramp_up=0.4).loss(network, batch, {}, progress)
    np.testing.assert_allclose(
        (terms["loss"] - terms["labeled_loss"]).item(), weight * terms["unlabeled_loss"].item(), rtol=1e-3, atol=1e-7
    )


def test_a_view_that_is_held_fixed_has_no_gradient() -> None:
    """Only the second view moves: the disagreement with the first view's probabilities as they are."""
    network, batch = linear_network(), pair(labeled=5, unlabeled=4, views=2)
    objective = PiModel(unlabeled_weight=7.0, ramp_up=0.5, ramp="linear", stop_gradient=True)

    terms = objective.loss(network, batch, {}, progress=0.25)

    fixed, moving = batch.unlabeled.views
    target = softmax(logits(parameters(network), fixed))

    def expected(W: Array) -> float:
        distance = ((softmax(logits(W, moving)) - target) ** 2).sum() / (4 * 3)
        return labeled_loss(W, batch) + 7.0 * 0.5 * distance  # half of the ramp's length is over

    assert terms["loss"].item() == pytest.approx(expected(parameters(network)), rel=1e-5)
    assert_gradient(network, terms["loss"], expected)

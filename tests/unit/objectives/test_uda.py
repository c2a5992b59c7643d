"""UDA against NumPy."""

import math

import numpy as np
import pytest
import torch

from semifl.objectives.uda import UDA, annealed_threshold
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


def test_a_sharpened_and_confident_weak_view_teaches_the_strong_one() -> None:
    network, batch = linear_network(), pair(labeled=5, unlabeled=8, views=2)
    objective = UDA(temperature=0.4, threshold=0.55, unlabeled_weight=2.0)

    terms = objective.loss(network, batch, {}, progress=0.5)

    W = parameters(network)
    weak, strong = batch.unlabeled.views
    kept = softmax(logits(W, weak)).max(axis=1) >= 0.55  # of the view itself, not of its sharpened target
    assert 0 < kept.sum() < 8
    p = softmax(logits(W, weak) / 0.4)

    def unlabeled(W: Array) -> float:
        kl = (p * (np.log(p) - np.log(softmax(logits(W, strong))))).sum(axis=1)
        return (kl * kept).sum() / 8

    def expected(W: Array) -> float:
        return labeled_loss(W, batch) + 2.0 * unlabeled(W)

    assert terms["unlabeled_loss"].item() == pytest.approx(unlabeled(W), rel=1e-5)
    assert terms["mask"].item() == pytest.approx(kept.mean())
    assert terms["labeled_mask"].item() == 1
    assert terms["loss"].item() == pytest.approx(expected(W), rel=1e-5)
    assert_gradient(network, terms["loss"], expected)


def test_annealing_leaves_out_labels_that_are_known() -> None:
    network, batch = linear_network(scale=2.0), pair(labeled=8, unlabeled=4, views=2)
    objective = UDA(annealing="linear")

    terms = objective.loss(network, batch, {}, progress=0.1)

    z, y = logits(parameters(network), batch.labeled.images), one_hot(batch.labeled.labels)
    unknown = (softmax(z) * y).sum(axis=1) <= 0.1 * (1 - 1 / 3) + 1 / 3
    assert 0 < unknown.sum() < 8
    expected = cross_entropies(z, y)[unknown].mean()
    assert terms["labeled_loss"].item() == pytest.approx(expected, rel=1e-5)
    assert terms["labeled_mask"].item() == pytest.approx(unknown.mean())


def test_annealing_of_labels_that_are_all_known() -> None:
    network, batch = linear_network(), pair(labeled=3, unlabeled=4, views=2)
    with torch.no_grad():
        network.module[1].weight.zero_()
        network.module[1].bias.copy_(torch.tensor([0.0, 9.0, 0.0]))
    known = batch._replace(labeled=batch.labeled._replace(labels=torch.tensor([1, 1, 1])))
    assert UDA(annealing="exp").loss(network, known, {}, progress=0.5)["labeled_loss"].item() == 0


@pytest.mark.parametrize(
    ("schedule", "progress", "expected"),
    [
        ("linear", 0.0, 0.1),
        ("linear", 0.5, 0.55),
        ("linear", 1.0, 1.0),
        ("log", 0.0, 0.1),
        ("log", 0.5, 0.1 + 0.9 * (1 - math.exp(-2.5))),
        ("exp", 0.5, 0.1 + 0.9 * math.exp(-2.5)),
        ("exp", 1.0, 1.0),
        ("none", 0.0, math.inf),
    ],
)
def test_the_annealed_threshold(schedule: str, progress: float, expected: float) -> None:
    assert annealed_threshold(schedule, progress, classes=10) == pytest.approx(expected)

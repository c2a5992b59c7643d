"""Mean Teacher against NumPy."""

import math

import numpy as np
import pytest
import torch

from semifl.objectives.mean_teacher import MeanTeacher
from unit.objectives.by_hand import (
    Array,
    array,
    assert_gradient,
    labeled_loss,
    linear_network,
    logits,
    pair,
    parameters,
    softmax,
)


def test_the_student_follows_the_teacher() -> None:
    network, batch = linear_network(), pair(labeled=5, unlabeled=4, views=2)
    objective = MeanTeacher(unlabeled_weight=7.0, ramp_up=0.5)
    memory = objective.start(linear_network(scale=-2.0).weights(), classes=3)

    terms = objective.loss(network, batch, memory, progress=0.25)

    for_student, for_teacher = batch.unlabeled.views
    target = softmax(logits(parameters(linear_network(scale=-2.0)), for_teacher))

    def distance(W: Array) -> float:
        return ((softmax(logits(W, for_student)) - target) ** 2).sum() / (4 * 3)

    def expected(W: Array) -> float:
        return labeled_loss(W, batch) + 7.0 * math.exp(-5 * 0.5**2) * distance(W)

    W = parameters(network)
    assert terms["unlabeled_loss"].item() == pytest.approx(distance(W), rel=1e-5)
    assert terms["loss"].item() == pytest.approx(expected(W), rel=1e-5)
    assert_gradient(network, terms["loss"], expected)


def test_the_teacher_is_an_average_that_first_forgets_fast() -> None:
    network = linear_network()
    objective = MeanTeacher(decay=0.6)
    first = network.weights()
    memory = objective.start(first, classes=3)
    teacher = {name: array(tensor) for name, tensor in first.items()}

    for α in (0.5, 0.6, 0.6):  # 1 − 1/2, then 1 − 1/3 and 1 − 1/4 are above the decay
        with torch.no_grad():
            network.vector.add_(1.0)
        objective.after_step(network, memory)
        now = network.weights()
        teacher = {name: α * teacher[name] + (1 - α) * array(now[name]) for name in teacher}

    found = objective.result(network.weights(), memory)
    assert int(memory["step"]) == 3
    assert found.keys() == first.keys()
    for name, tensor in found.items():
        np.testing.assert_allclose(array(tensor), teacher[name], rtol=1e-6, atol=1e-6)


def test_the_teacher_is_its_own() -> None:
    network = linear_network()
    weights = network.weights()
    kept = {name: tensor.clone() for name, tensor in weights.items()}
    objective = MeanTeacher()
    memory = objective.start(weights, classes=3)
    with torch.no_grad():
        network.vector.zero_()

    objective.after_step(network, memory)

    assert all(torch.equal(weights[name], kept[name]) for name in kept)
    assert not any(tensor.requires_grad for tensor in memory.values())


def test_the_weight_can_rise_in_a_straight_line() -> None:
    network, batch = linear_network(), pair(labeled=5, unlabeled=4, views=2)
    objective = MeanTeacher(unlabeled_weight=7.0, ramp_up=0.4, ramp="linear")
    memory = objective.start(linear_network(scale=-2.0).weights(), classes=3)
    terms = objective.loss(network, batch, memory, progress=0.1)
    rise = (terms["loss"] - terms["labeled_loss"]).item()
    assert rise == pytest.approx(7.0 * 0.25 * terms["unlabeled_loss"].item(), rel=1e-4)

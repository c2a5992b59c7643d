"""MixMatch against NumPy; only the draws of Mixup are shared with the program, by their seed."""

import numpy as np
import pytest
import torch

from semifl.objectives.mixmatch import MixMatch
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


@pytest.mark.parametrize(("labeled", "unlabeled", "K"), [(4, 4, 2), (5, 3, 2), (2, 6, 3)])
def test_the_two_losses(labeled: int, unlabeled: int, K: int) -> None:
    network, batch = linear_network(), pair(labeled, unlabeled, views=K)
    objective = MixMatch(weak_views=K, temperature=0.4, mix_beta=0.8, unlabeled_weight=20.0, ramp_up=0.5)
    W = parameters(network)

    torch.manual_seed(11)
    terms = objective.loss(network, batch, {}, progress=0.1)

    total = labeled + K * unlabeled
    torch.manual_seed(11)
    λ = array(torch.distributions.Beta(0.8, 0.8).sample((total,)))
    partner = torch.randperm(total).numpy()
    λ = np.maximum(λ, 1 - λ)[:, None]
    q = sharpened(sum(softmax(logits(W, view)) for view in batch.unlabeled.views) / K, 0.4)
    x = np.concatenate([array(part).reshape(len(part), -1) for part in (batch.labeled.images, *batch.unlabeled.views)])
    y = np.concatenate([one_hot(batch.labeled.labels), *[q] * K])
    x, y = λ * x + (1 - λ) * x[partner], λ * y + (1 - λ) * y[partner]

    def mixed_labeled(W: Array) -> float:
        return cross_entropies(logits(W, x[:labeled]), y[:labeled]).sum() / labeled

    def mixed_unlabeled(W: Array) -> float:
        return ((softmax(logits(W, x[labeled:])) - y[labeled:]) ** 2).sum() / (3 * K * unlabeled)

    def expected(W: Array) -> float:
        return mixed_labeled(W) + 20.0 * 0.2 * mixed_unlabeled(W)

    assert terms["labeled_loss"].item() == pytest.approx(mixed_labeled(W), rel=1e-5)
    assert terms["unlabeled_loss"].item() == pytest.approx(mixed_unlabeled(W), rel=1e-5)
    assert terms["loss"].item() == pytest.approx(expected(W), rel=1e-5)
    assert_gradient(network, terms["loss"], expected)  # none of which flows through the guesses


def test_it_asks_for_as_many_weak_views_as_it_averages() -> None:
    assert MixMatch().views == ("weak", "weak")
    assert MixMatch(weak_views=4).views == ("weak",) * 4

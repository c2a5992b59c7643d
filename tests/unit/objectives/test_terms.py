"""What several objectives share: ramps, sharpening, Mixup, interleaving."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from semifl.learning.network import Network
from semifl.objectives._terms import interleave, interleaved_logits, linear_ramp, mixup, ramp, sharpen


@pytest.mark.parametrize(
    ("progress", "length", "expected"),
    [(0, 0.5, math.exp(-5)), (0.25, 0.5, math.exp(-1.25)), (0.5, 0.5, 1), (0.7, 0.5, 1), (0, 0, 1)],
)
def test_the_gaussian_ramp(progress: float, length: float, expected: float) -> None:
    assert ramp("gaussian", progress, length) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("progress", "length", "begin", "expected"),
    [
        (0, 0.5, 0, 0),
        (0.1, 0.5, 0, 0.2),
        (0.5, 0.5, 0, 1),
        (0.9, 0.5, 0, 1),
        (0.2, 0.6, 0.2, 0),
        (0.3, 0.6, 0.2, 0.25),
        (0, 0, 0, 1),
        (0.5, 0.5, 0.5, 1),
    ],
)
def test_the_linear_ramp(progress: float, length: float, begin: float, expected: float) -> None:
    assert linear_ramp(progress, length, begin) == pytest.approx(expected)


def test_sharpening_by_hand() -> None:
    p = torch.tensor([[0.5, 0.3, 0.2], [1.0, 0.0, 0.0]])
    expected = [[0.25 / 0.38, 0.09 / 0.38, 0.04 / 0.38], [1, 0, 0]]
    np.testing.assert_allclose(sharpen(p, 0.5).numpy(), expected, rtol=1e-6)
    np.testing.assert_allclose(sharpen(p, 1.0).numpy(), p.numpy(), rtol=1e-6)
    np.testing.assert_allclose(sharpen(p, 1e-4).numpy(), [[1, 0, 0], [1, 0, 0]])  # where powers would vanish


def test_a_mixture_is_mostly_itself() -> None:
    images, targets = torch.randn(2000, 1, 1, 1), torch.eye(2000)
    torch.manual_seed(4)
    mixed, mixed_targets = mixup(images, targets, 0.75)

    torch.manual_seed(4)
    λ = torch.distributions.Beta(0.75, 0.75).sample((2000,)).double().numpy()
    partner = torch.randperm(2000).numpy()
    λ = np.where(λ > 0.5, λ, 1 - λ)
    x = images.flatten().double().numpy()
    np.testing.assert_allclose(mixed.flatten().numpy(), λ * x + (1 - λ) * x[partner], rtol=1e-4, atol=1e-6)
    expected = np.zeros((2000, 2000))
    expected[np.arange(2000), np.arange(2000)] += λ
    expected[np.arange(2000), partner] += 1 - λ
    np.testing.assert_allclose(mixed_targets.numpy(), expected, atol=1e-6)


def test_interleaving_by_hand() -> None:
    # Three batches a, b, c of six in parts of two: b gives its second part for a's second, c its third for a's third.
    a, b, c = [0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10, 11], [12, 13, 14, 15, 16, 17]
    first, second, third = (group.tolist() for group in interleave([6, 6, 6]))
    assert first == a[:2] + b[2:4] + c[4:]
    assert second == b[:2] + a[2:4] + b[4:]
    assert third == c[:4] + a[4:]


@pytest.mark.parametrize("sizes", [[6, 6, 6], [4, 9, 9], [10, 3, 3], [2, 2, 2], [5, 7], [3, 8, 8, 8, 8]])
def test_interleaving_loses_nobody_and_leaves_no_batch_of_one(sizes: list[int]) -> None:
    groups = interleave(sizes)
    assert len(groups) == len(sizes)
    assert sorted(torch.cat(groups).tolist()) == list(range(sum(sizes)))
    assert min(map(len, groups)) > 1


def test_interleaved_passes_share_batch_statistics_and_return_in_order() -> None:
    network = Network(nn.Sequential(nn.Flatten(), nn.BatchNorm1d(1, affine=False), nn.Linear(1, 1, bias=False)))
    network.module.train()
    with torch.no_grad():
        network.vector.fill_(1.0)  # so that the logit is the normalised picture
    images = torch.arange(8.0).view(8, 1, 1, 1) ** 2

    found = interleaved_logits(network, images, [4, 4]).flatten().detach().numpy()

    x = np.arange(8.0) ** 2
    expected = np.zeros(8)
    for group in ([0, 1, 6, 7], [4, 5, 2, 3]):
        expected[group] = (x[group] - x[group].mean()) / np.sqrt(x[group].var() + 1e-5)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

"""AUC, F1, calibration and thresholds, each derived by hand or by counting pairs in NumPy."""

import numpy as np
import pytest
import torch

from semifl.intervals import CALIBRATION_BINS
from semifl.learning.metrics import (
    auc,
    best_threshold,
    calibration_error,
    class_f1,
    decide,
    f1,
    reliability,
)


def two(positive: list[float]) -> torch.Tensor:
    """Probabilities of two classes from that of the second."""
    share = torch.tensor(positive, dtype=torch.float64)
    return torch.stack([1 - share, share], dim=1)


def area_by_pairs(shares: np.ndarray, labels: np.ndarray, of: int) -> float:
    """Every picture of a class against every other one: 1 if it has more, ½ if as much."""
    mine, others = shares[labels == of, of], shares[labels != of, of]
    return float(np.mean([(a > b) + 0.5 * (a == b) for a in mine for b in others]))


def test_the_area_of_two_classes_by_hand() -> None:
    # Ones have .9 and .4, zeros .5 and .1: .9 beats both, .4 beats .1 alone: three of four pairs.
    assert auc(two([0.9, 0.4, 0.5, 0.1]), torch.tensor([1, 1, 0, 0])) == 75.0
    # A tie counts half.
    assert auc(two([0.5, 0.5]), torch.tensor([1, 0])) == 50.0


def test_the_area_of_more_classes_is_the_mean_of_each_against_the_rest() -> None:
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 4, 60)
    shares = rng.dirichlet(np.ones(4), 60)

    expected = np.mean([area_by_pairs(shares, labels, of) for of in range(4)])

    assert auc(torch.from_numpy(shares), torch.from_numpy(labels)) == pytest.approx(100 * expected, rel=1e-12)


def test_a_class_without_pictures_has_no_area() -> None:
    rng = np.random.default_rng(4)
    labels = rng.choice([0, 2], 30)
    shares = rng.dirichlet(np.ones(3), 30)

    expected = np.mean([area_by_pairs(shares, labels, of) for of in (0, 2)])

    assert auc(torch.from_numpy(shares), torch.from_numpy(labels)) == pytest.approx(100 * expected, rel=1e-12)
    assert auc(two([0.2, 0.9]), torch.tensor([1, 1])) == 50.0  # nothing to tell apart


def test_f1_by_hand() -> None:
    # Class 0: 4 hits, drawn 5, said 5; class 1: 1 hit, drawn 2, said 2; class 2 does not occur.
    confusion = torch.tensor([[4, 1, 0], [1, 1, 0], [0, 0, 0]])
    assert class_f1(confusion) == [pytest.approx(80.0), pytest.approx(50.0), None]
    assert f1(confusion) == pytest.approx(65.0)


def test_calibration_error_by_hand() -> None:
    # Fifteen bins of 1/15: 0.9 and 0.92 share the bin (13/15, 14/15], 0.53 is alone in (7/15, 8/15].
    assert CALIBRATION_BINS == 15
    shares, labels = two([0.9, 0.92, 0.53, 1.0]), torch.tensor([1, 0, 1, 1])
    # Right are all but the second: |1 + 0 − 1.82| + |1 − 0.53| + |1 − 1| over four pictures.
    assert calibration_error(shares, labels) == pytest.approx(100 * (0.82 + 0.47 + 0.0) / 4, abs=1e-9)
    counts = [(each.pictures, each.accuracy) for each in reliability(shares, labels)]
    assert counts == [(1, 100.0), (2, 50.0), (1, 100.0)]


def test_a_model_that_knows_what_it_knows_has_no_error() -> None:
    assert calibration_error(two([0.7] * 10), torch.tensor([1] * 7 + [0] * 3)) == pytest.approx(0, abs=1e-9)


def test_sensitivity_and_specificity_by_hand() -> None:
    positive, truth = torch.tensor([0.2, 0.3, 0.6, 0.9]), torch.tensor([False, True, False, True])
    assert decide(positive, truth, 0.5) == (0.5, 50.0, 50.0)
    assert decide(positive, truth, 0.3) == (pytest.approx(0.3), 100.0, 50.0)  # from the threshold on
    assert decide(positive, truth, 0.95) == (0.95, 0.0, 100.0)


def test_the_best_threshold_by_hand() -> None:
    # Between 0.2 and 0.3 every positive is found and two of three negatives are spared: 1 + 2/3, more than anywhere.
    positive = torch.tensor([0.1, 0.2, 0.3, 0.35, 0.9], dtype=torch.float64)
    truth = torch.tensor([False, False, True, False, True])
    assert best_threshold(positive, truth) == pytest.approx(0.25)
    # Two that nothing tells apart from each other: a half is as good as any between them.
    assert best_threshold(torch.tensor([0.1, 0.8]), torch.tensor([False, True])) == 0.5
    assert best_threshold(torch.tensor([0.1, 0.8]), torch.tensor([True, True])) == 0.5

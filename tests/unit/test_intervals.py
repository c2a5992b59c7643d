"""Intervals against SciPy, against other derivations in NumPy, and by hand."""

import math

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import f1_score, roc_auc_score

from semifl.intervals import (
    STANDARD_ERRORS,
    Z,
    metric_intervals,
    of_mean,
    paired_differences,
    standard_error,
    wilson,
)
from semifl.records.metrics import METRICS


def models(count: int, classes: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels, and the probabilities of two models that know something of them."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, classes, count)
    logits = rng.normal(size=(count, classes))
    logits[np.arange(count), labels] += 1.5
    other = logits + rng.normal(size=logits.shape)
    return labels, *(np.exp(each) / np.exp(each).sum(axis=1, keepdims=True) for each in (logits, other))


@pytest.mark.parametrize(("hits", "count"), [(0, 10), (7, 10), (245, 300), (300, 300)])
def test_wilson_is_scipys(hits: int, count: int) -> None:
    theirs = stats.binomtest(hits, count).proportion_ci(0.95, method="wilson")
    assert wilson(hits, count) == pytest.approx((100 * theirs.low, 100 * theirs.high))


def test_accuracy_has_wilsons_interval_of_the_right_answers() -> None:
    labels, ours, _ = models(200, 3)
    right = int((ours.argmax(axis=1) == labels).sum())
    assert metric_intervals(ours, labels)["accuracy"] == wilson(right, 200)


def test_the_interval_of_a_mean_by_hand() -> None:
    """Two shares of 50 and 90; below them 3 and 4, so that the mean has √(9 + 16) / 2 = 2.5; above 6 and 8: 5."""
    assert of_mean([50.0, 90.0], [(47.0, 56.0), (86.0, 98.0)]) == pytest.approx((67.5, 75.0))


def test_balanced_accuracy_joins_the_classes_intervals() -> None:
    labels = np.array([0] * 10 + [1] * 40)
    ours = np.eye(2)[np.array([0] * 8 + [1] * 2 + [1] * 30 + [0] * 10)]
    one, two = wilson(8, 10), wilson(30, 40)
    low = 77.5 - math.hypot(80 - one.low, 75 - two.low) / 2
    assert metric_intervals(ours, labels)["balanced_accuracy"].low == pytest.approx(low)


def delong(score: np.ndarray, other: np.ndarray, positive: np.ndarray) -> tuple[float, float, float]:
    """DeLong's variances of two areas and of their difference, pair by pair."""

    def components(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        x, y = values[positive], values[~positive]
        kernel = (x[:, None] > y[None, :]) + 0.5 * (x[:, None] == y[None, :])
        return kernel.mean(axis=1), kernel.mean(axis=0)

    (a10, a01), (b10, b01) = components(score), components(other)
    s10, s01 = np.cov(a10, b10), np.cov(a01, b01)
    covariance = s10 / positive.sum() + s01 / (~positive).sum()
    return covariance[0, 0], covariance[1, 1], covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1]


def test_auc_is_delongs() -> None:
    labels, ours, theirs = models(150, 2)
    ours = ours.round(1)  # with ties
    single, _, both = delong(ours[:, 1], theirs[:, 1], labels == 1)
    area = roc_auc_score(labels, ours[:, 1])
    half = Z * math.sqrt(single) / (area * (1 - area))
    odds = math.log(area / (1 - area))
    found = metric_intervals(ours, labels)["auc"]
    assert found == pytest.approx((100 / (1 + math.exp(-odds + half)), 100 / (1 + math.exp(-odds - half))))
    gap = paired_differences(ours, theirs, labels)["auc"]
    assert gap.value == pytest.approx(100 * (area - roc_auc_score(labels, theirs[:, 1])))
    assert gap.high - gap.value == pytest.approx(100 * Z * math.sqrt(both))


def test_the_mean_auc_of_three_classes_varies_as_resampled() -> None:
    """A stratified bootstrap of scikit-learn's areas, within a tenth of the standard error."""
    labels, ours, _ = models(300, 3)
    rng = np.random.default_rng(1)
    groups = [np.flatnonzero(labels == each) for each in range(3)]
    areas = []
    for _ in range(400):
        drawn = np.concatenate([rng.choice(group, len(group)) for group in groups])
        truth = np.eye(3)[labels[drawn]]
        areas.append(100 * roc_auc_score(truth, ours[drawn]))
    found = metric_intervals(ours, labels)["auc"]
    assert found.high - found.low == pytest.approx(2 * Z * np.std(areas), rel=0.15)
    assert found.low < 100 * roc_auc_score(np.eye(3)[labels], ours) < found.high


def test_a_perfect_model_is_not_certain() -> None:
    labels = np.array([0] * 10 + [1] * 10)
    found = metric_intervals(np.eye(2)[labels], labels)
    for name in METRICS:
        assert found[name].high == pytest.approx(100)
        assert found[name].low < 99


def test_f1_varies_as_resampled() -> None:
    labels, ours, theirs = models(200, 3)
    said, other = ours.argmax(axis=1), theirs.argmax(axis=1)
    rng = np.random.default_rng(2)
    draws = [rng.integers(0, 200, 200) for _ in range(400)]
    ones = [100 * f1_score(labels[drawn], said[drawn], average="macro") for drawn in draws]
    twos = [100 * f1_score(labels[drawn], other[drawn], average="macro") for drawn in draws]
    found, gap = metric_intervals(ours, labels)["f1"], paired_differences(ours, theirs, labels)["f1"]
    value = 100 * f1_score(labels, said, average="macro")
    assert (found.low + found.high) / 2 == pytest.approx(value)
    assert found.high - found.low == pytest.approx(2 * Z * np.std(ones), rel=0.15)
    assert gap.high - gap.low == pytest.approx(2 * Z * np.std(np.subtract(ones, twos)), rel=0.15)


def test_the_difference_of_accuracies_by_hand() -> None:
    """Of 98 pictures 19 only by us, 9 only by them: Bonett and Price's shares are 20 and 10 of 100."""
    labels = np.zeros(98, dtype=np.int64)
    ours, theirs = np.zeros(98, dtype=int), np.zeros(98, dtype=int)
    theirs[:19], ours[19:28] = 1, 1
    gap = paired_differences(np.eye(2)[ours], np.eye(2)[theirs], labels)["accuracy"]
    half = 1.959964 * math.sqrt((0.2 + 0.1 - 0.01) / 100)
    assert gap == pytest.approx((100 * 10 / 98, 100 * (0.1 - half), 100 * (0.1 + half)), rel=1e-6)
    assert not gap.is_clear
    assert str(gap) == "+10.2 points [-0.6, +20.6]"


def test_a_paired_difference_is_sharper_than_two_intervals_and_the_same_each_time() -> None:
    labels, ours, theirs = models(300, 2)
    gaps, single = paired_differences(ours, theirs, labels), metric_intervals(ours, labels)
    for name in METRICS:
        assert gaps[name].low < gaps[name].value < gaps[name].high
        assert gaps[name].high - gaps[name].low < math.sqrt(2) * (single[name].high - single[name].low)
    assert paired_differences(ours, theirs, labels) == gaps
    assert all(gap.value == 0 for gap in paired_differences(ours, ours, labels).values())


def test_calibration_error_has_an_interval_around_it() -> None:
    """Always 80 % sure and right 6 times of 10: an error of 20 points; its standard error is that of the accuracy."""
    labels = np.array([0] * 600 + [1] * 400)
    ours = np.tile([0.8, 0.2], (1000, 1))
    found = metric_intervals(ours, labels)["calibration_error"]
    assert (found.low + found.high) / 2 == pytest.approx(20.0)
    assert found.high - found.low == pytest.approx(200 * Z * math.sqrt(0.6 * 0.4 / 1000), rel=0.1)


def test_every_metric_declares_its_standard_error_and_another_is_refused() -> None:
    assert set(STANDARD_ERRORS) == set(METRICS)
    with pytest.raises(KeyError):
        standard_error("kappa", 80.0, [[4, 1], [1, 4]])

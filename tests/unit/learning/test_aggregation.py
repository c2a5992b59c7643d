"""Robust aggregation against closed form and against clients that mean no good."""

import numpy as np
import pytest
import torch

from semifl.learning.aggregation import AGGREGATIONS, Trimmed

KINDS = ("mean", "clipped", "median", "trimmed")


def aggregate(kind: str, changes, share: float):
    return Trimmed(share)(changes) if kind == "trimmed" else AGGREGATIONS[kind]()(changes)


def changes(*rows: list[float]) -> list[dict[str, torch.Tensor]]:
    return [{"w": torch.tensor(row), "b": torch.tensor([row[0]])} for row in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_of_nothing_there_is_nothing(kind) -> None:
    assert aggregate(kind, iter([]), 0.2) is None


@pytest.mark.parametrize("kind", KINDS)
def test_of_one_change_it_is_that_change(kind) -> None:
    result = aggregate(kind, changes([3.0, -1.0]), 0.2)
    assert result["w"].tolist() == [3.0, -1.0]


def test_mean_and_median_by_hand() -> None:
    rows = changes([1.0, 10.0], [2.0, 20.0], [6.0, 60.0], [100.0, -7.0])
    assert aggregate("mean", rows, 0.2)["w"].tolist() == [27.25, 20.75]
    # The two in the middle: 2 and 6; of 10, 20, 60, −7 they are 10 and 20.
    assert aggregate("median", rows, 0.2)["w"].tolist() == [4.0, 15.0]
    assert aggregate("median", rows[:3], 0.2)["w"].tolist() == [2.0, 20.0]


def test_trimmed_mean_by_hand() -> None:
    rows = changes([1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0], [1000.0, 0.0])
    # 0.2 of five drops one at each end: (2 + 3 + 4) / 3; 0.4 drops two: 3; nothing is dropped at 0.
    assert aggregate("trimmed", rows, 0.2)["w"][0] == 3.0
    assert aggregate("trimmed", rows, 0.4)["w"][0] == 3.0
    assert aggregate("trimmed", rows, 0.0)["w"][0] == 202.0
    assert aggregate("trimmed", rows[:2], 0.49)["w"][0] == 1.5  # one must be left


def test_clipped_mean_by_hand() -> None:
    # Lengths, b counting too: √(9+16+9), √(0+1+0), √(36+64+36); the median is √34.
    rows = [{"w": torch.tensor(w), "b": torch.tensor([w[0]])} for w in ([3.0, 4.0], [0.0, 1.0], [6.0, 8.0])]
    # The third is twice as long as the first, so it is halved.
    expected = np.mean([[3.0, 4.0], [0.0, 1.0], [3.0, 4.0]], axis=0)
    np.testing.assert_allclose(aggregate("clipped", rows, 0.2)["w"].numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("kind", ["clipped", "median", "trimmed"])
def test_three_bad_clients_of_ten_cannot_carry_the_model_away(kind) -> None:
    generator = torch.Generator().manual_seed(0)
    honest = [{"w": 1 + 0.1 * torch.randn(50, generator=generator)} for _ in range(7)]
    bad = [{"w": 1000 * torch.randn(50, generator=generator)} for _ in range(3)]
    truth = torch.stack([each["w"] for each in honest]).mean(dim=0)
    away = {k: float((aggregate(k, [*bad, *honest], 0.3)["w"] - truth).norm()) for k in ("mean", kind)}
    assert away["mean"] > 1000
    assert away[kind] < 4.5  # the mean of the honest is 7.07 long

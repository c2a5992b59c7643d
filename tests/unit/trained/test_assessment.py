"""Precision, recall and calibration, counted by hand."""

import pytest
import torch

from semifl.trained.assessment import calibration_error, class_scores


def test_precision_and_recall_by_hand() -> None:
    # Rows are the truth: of 5 cats 4 were found and 1 taken for a dog; of 2 dogs 1; nobody drew or said "eel".
    confusion = torch.tensor([[4, 1, 0], [1, 1, 0], [0, 0, 0]])
    scores = class_scores(confusion, ("cat", "dog", "eel"))
    assert scores["cat"] == (pytest.approx(100 * 4 / 5), pytest.approx(100 * 4 / 5), 5)
    assert scores["dog"] == (pytest.approx(100 * 1 / 2), pytest.approx(100 * 1 / 2), 2)
    assert scores["eel"] == (None, None, 0)


def test_calibration_error_by_hand() -> None:
    # Fifteen bins of 1/15: 0.9 and 0.92 share the bin (13/15, 14/15], 0.5 is alone in (7/15, 8/15].
    confidence = torch.tensor([0.9, 0.92, 0.5, 1.0])
    right = torch.tensor([True, False, True, True])
    # |1 + 0 − 1.82| + |1 − 0.5| + |1 − 1| over four pictures
    assert calibration_error(confidence, right) == pytest.approx((0.82 + 0.5 + 0.0) / 4, abs=1e-6)


def test_a_model_that_knows_what_it_knows_has_no_error() -> None:
    confidence = torch.full((10,), 0.7)
    right = torch.tensor([True] * 7 + [False] * 3)
    assert calibration_error(confidence, right) == pytest.approx(0, abs=1e-6)

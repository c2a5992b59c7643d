"""Precision, recall, specificity and F1 by class, counted by hand."""

import pytest
import torch

from semifl.trained.assessment import class_scores


def test_numbers_by_class_by_hand() -> None:
    # Rows are the truth: of 5 cats 4 were found and 1 taken for a dog; of 2 dogs 1; nobody drew or said "eel".
    confusion = torch.tensor([[4, 1, 0], [1, 1, 0], [0, 0, 0]])
    scores = class_scores(confusion, ("cat", "dog", "eel"))
    # Precision and recall of cat 4/5, so its F1 too; of the two that are no cats one was not called a cat.
    assert scores["cat"] == (*[pytest.approx(100 * 4 / 5)] * 2, 50.0, pytest.approx(80.0), 5)
    # Of dog 1/2 each; of the five that are no dogs four were not called a dog.
    assert scores["dog"] == (50.0, 50.0, pytest.approx(80.0), 50.0, 2)
    assert scores["eel"] == (None, None, 100.0, None, 0)

"""Precision, recall, specificity and F1 by class, counted by hand."""

import json

import pytest
import torch

from semifl.learning.evaluation import score
from semifl.trained.assessment import Assessment, class_scores


def test_numbers_by_class_by_hand() -> None:
    # Rows are the truth: of 5 cats 4 were found and 1 taken for a dog; of 2 dogs 1; nobody drew or said "eel".
    confusion = torch.tensor([[4, 1, 0], [1, 1, 0], [0, 0, 0]])
    scores = class_scores(confusion, ("cat", "dog", "eel"))
    # Precision and recall of cat 4/5, so its F1 too; of the two that are no cats one was not called a cat.
    assert scores["cat"] == (*[pytest.approx(100 * 4 / 5)] * 2, 50.0, pytest.approx(80.0), 5)
    # Of dog 1/2 each; of the five that are no dogs four were not called a dog.
    assert scores["dog"] == (50.0, 50.0, pytest.approx(80.0), 50.0, 2)
    assert scores["eel"] == (None, None, 100.0, None, 0)


def assessed(labels: list[int], positive: int = 1) -> Assessment:
    """Two pictures, of which the model calls the first the second class, and the other the first."""
    found = score(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor(labels))
    names = ("healthy", "ill")
    return Assessment(
        found, found.confusion, class_scores(found.confusion, names), names[positive], found.decision(positive, 0.5)
    )


def test_what_pictures_of_one_class_cannot_tell_is_not_told() -> None:
    numbers = assessed([1, 1]).numbers()
    assert (numbers["accuracy"], numbers["sensitivity"]) == (50.0, 50.0)  # one of two ill ones is found
    assert (numbers["auc"], numbers["specificity"]) == (None, None)  # nobody is healthy
    assert assessed([0, 0]).numbers()["sensitivity"] is None
    assert assessed([1, 0]).numbers() | {"calibration_error": 0} == {
        **dict.fromkeys(("accuracy", "balanced_accuracy", "auc", "f1", "sensitivity", "specificity"), 100.0),
        "calibration_error": 0,
    }
    told = json.dumps(assessed([1, 1]).facts(), allow_nan=False)
    assert {name for name, value in json.loads(told).items() if value is None} == {"auc", "specificity"}

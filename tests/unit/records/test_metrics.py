"""Numbers as people read them."""

import pytest

from semifl.records.metrics import said


@pytest.mark.parametrize(
    ("threshold", "words"),
    [
        *((0.5, "0.500"), (0.0025, "0.00250"), (0.9975, "0.99750"), (0.125, "0.125")),
        *((0.0, "0.000"), (1.0, "1.000"), (1.5e-7, "1.5e-07")),
    ],
)
def test_a_threshold_has_three_digits_that_count(threshold: float, words: str) -> None:
    assert said("best_decision_threshold", threshold) == words


def test_what_is_no_threshold_is_in_percent() -> None:
    assert (said("auc", 75.04), said("decision_threshold", None)) == ("75.0 %", "–")

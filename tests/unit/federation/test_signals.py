"""The table of signals: how a round's clients become one line, by hand, and that everybody follows the same table."""

import pytest

from semifl.deploy.answers import Signals
from semifl.deploy.policy import Share
from semifl.federation.signals import CURVES, SIGNALS, recorded

TOLD = [
    {"images": 10, "confident": 4, "confidence": 7.5, "known": 10, "right": 6, "known_confident": 4},
    {"images": 30, "confident": 6, "confidence": 20.5, "known": 0, "right": 0, "known_confident": 0},
]


def test_ratios_by_hand():
    record = recorded([{**each, "right_confident": 3 if each["known"] else 0} for each in TOLD])
    assert record["label_ratio"] == 10 / 40
    assert record["mean_confidence"] == 28 / 40
    assert record["pseudo_accuracy"] == 60.0
    assert record["confident_accuracy"] == 75.0
    assert "site_accuracy" not in record


def test_what_a_site_keeps_to_itself_is_not_counted():
    record = recorded([TOLD[0], {"images": 30}, {}])
    assert record["label_ratio"] == 4 / 10  # the second tells no number of confident ones, so its 30 do not count
    assert record["class_histogram"] == []
    assert record["confidence_histograms"] == [None, None, None]
    nobody = recorded([{}, {}])
    assert [nobody[key] for key in ("label_ratio", "pseudo_accuracy")] == [None, None]
    assert nobody["confidence_histograms"] == []


def test_counts_by_class_are_added_and_bars_stand_side_by_side():
    told = [{"images": 3, "classes": [1, 2], "confidence_bins": [1] * 10}, {"images": 4, "classes": [3, 0]}]
    record = recorded(told)
    assert record["class_histogram"] == [4, 2]
    assert record["confidence_histograms"] == [[1] * 10, None]
    assert recorded([{"images": 1, "own_right": 3, "own_total": 4}])["site_accuracy"] == 75.0


def test_policy_answers_and_report_follow_the_table():
    words = {signal.share for signal in SIGNALS if signal.share}
    assert words <= set(Share.__dataclass_fields__)
    assert set(Signals.model_fields) == {signal.name for signal in SIGNALS if signal.share}
    names = {signal.name for signal in SIGNALS}
    assert len(names) == len(SIGNALS)
    assert {curve.over for curve in CURVES.values()} <= names


@pytest.mark.parametrize("name", ["right", "known", "right_confident", "known_confident"])
def test_what_only_a_simulation_knows_has_no_word_that_lets_it_out(name):
    assert next(signal for signal in SIGNALS if signal.name == name).share == ""


def test_what_a_diverged_model_says_is_no_number():
    """A file of JSON has none for it."""
    record = recorded([{"images": 10, "confidence": float("nan"), "confident": 0}])
    assert record["mean_confidence"] is None
    assert record["label_ratio"] == 0

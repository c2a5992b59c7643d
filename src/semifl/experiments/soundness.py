"""What a line of rounds.jsonl and a result must hold, so that whoever goes on from them finds it there."""

from __future__ import annotations

from typing import Any

LARGEST = 1e18  # of numbers; what lies beyond is damage
ROUND_NUMBERS = ("round", "accuracy", "bytes_up", "bytes_down")
ROUND_MAYBE_NUMBERS = ("label_ratio", "agreement", "update_norm")
ROUND_LISTS = ("cohort", "abstained", "failed", "alerts", "class_histogram")
RESULT_NUMBERS = ("accuracy", "rounds", "best_round", "best_accuracy", "seconds")


def is_round(record: Any) -> bool:
    """Whether this is a finished round that a run can go on from."""
    if not isinstance(record, dict) or type(record.get("round")) is not int or record["round"] < 1:
        return False
    numbers = [record.get(key) for key in ROUND_NUMBERS]
    numbers += [record[key] for key in ROUND_MAYBE_NUMBERS if record.get(key) is not None]
    numbers += [record["validation_accuracy"]] if "validation_accuracy" in record else []
    if not all(map(is_number, numbers)) or not all(key in record for key in ROUND_MAYBE_NUMBERS):
        return False
    if not all(isinstance(record.get(key), list) for key in ROUND_LISTS):
        return False
    seconds = record.get("seconds")
    return all(map(is_number, record["class_histogram"])) and isinstance(seconds, dict) and _are_seconds(seconds)


def is_result(record: dict[str, Any]) -> bool:
    """Whether this is a whole outcome."""
    labels_only = record.get("labels_only_accuracy")
    return (
        "labels_only_accuracy" in record
        and (labels_only is None or is_number(labels_only))
        and all(is_number(record.get(key)) for key in RESULT_NUMBERS)
    )


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < LARGEST


def _are_seconds(seconds: dict[str, Any]) -> bool:
    return "total" in seconds and all(map(is_number, seconds.values()))

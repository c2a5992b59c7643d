"""What a client may tell of its turn, one row each: its form, who lets it out, how it is recorded, what people call it.

A client computes sums over its pictures (`federation/sites.py`, `federation/oracle.py`). The site's policy, the hub's
check of an answer, the record of a round and the report follow this table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from semifl.records.record import number

Form = Literal["count", "sum", "classes", "bins", "rate"]  # of pictures; over pictures; by class; ten bars; none
BINS = 10  # bars of a histogram of confidence, of equal width from 0 to 1


@dataclass(frozen=True)
class Curve:
    """A number by round: the signal's sum over clients, divided by another's; drawn in percent."""

    key: str  # in rounds.jsonl
    over: str
    scale: float  # from the ratio to what is recorded
    label: str
    always: bool = True  # in every record, null where nobody told; else only where somebody did


@dataclass(frozen=True)
class Signal:
    name: str
    form: Form
    share: str  # the word of policy.toml that lets it out; empty: it never leaves a simulation
    curve: Curve | None = None
    total: str = ""  # the key in rounds.jsonl of its sum over clients, class by class
    each: str = ""  # the key in rounds.jsonl of every client's own

    @property
    def is_of_pictures(self) -> bool:
        """Whether it grows with the pictures, so that a small one would be about a few of them."""
        return self.form != "rate"


SIGNALS = (
    Signal("lr", "rate", "training"),
    Signal("images", "count", "counts"),
    Signal("confident", "count", "counts", Curve("label_ratio", "images", 1.0, "pictures that are confident")),
    Signal("confidence", "sum", "confidence", Curve("mean_confidence", "images", 1.0, "mean confidence")),
    Signal("right", "count", "", Curve("pseudo_accuracy", "known", 100.0, "pseudo-labels that are right")),
    Signal("known", "count", ""),
    Signal(
        "right_confident",
        "count",
        "",
        Curve("confident_accuracy", "known_confident", 100.0, "confident pseudo-labels that are right"),
    ),
    Signal("known_confident", "count", ""),
    Signal("classes", "classes", "class_histogram", total="class_histogram"),
    Signal("predicted", "classes", "class_histogram", total="class_predictions"),
    Signal("said", "classes", "class_histogram"),  # by the model, where a client labels otherwise
    Signal(
        "own_right",
        "count",
        "accuracy",
        Curve("site_accuracy", "own_total", 100.0, "right of the sites' own labels", always=False),
    ),
    Signal("own_total", "count", "accuracy"),
    Signal("confidence_bins", "bins", "confidence", each="confidence_histograms"),
)
CURVES = {signal.curve.key: signal.curve for signal in SIGNALS if signal.curve}


def recorded(told: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The signals of a round's clients as they stand in rounds.jsonl; what a site keeps to itself is not counted."""
    spoke = [each for each in told if "images" in each]
    record: dict[str, Any] = {}
    for signal in SIGNALS:
        if curve := signal.curve:
            part = whole = 0.0
            for each in told:
                if signal.name in each and curve.over in each:
                    part += each[signal.name]
                    whole += each[curve.over]
            if whole or curve.always:
                record[curve.key] = number(curve.scale * part / whole) if whole else None
        if signal.total:
            counts = [each[signal.name] for each in told if signal.name in each]
            record[signal.total] = [sum(column) for column in zip(*counts, strict=True)]
        if signal.each:
            record[signal.each] = [each.get(signal.name) for each in told] if spoke else []
    return record

"""Whether clients' pictures are mostly of one class because the sites are so, or because the model collapses."""

from __future__ import annotations

from typing import NamedTuple

from semifl.records.faults import class_name
from semifl.records.verdict import faults
from semifl.report.reading import Run, counts

RECENT = 3  # rounds
ENOUGH = 50  # pictures
MORE = 0.15  # of all pictures, beyond the class's share of the server's labels
TOLD_APART = 0.3  # least difference between the shares of a class's and of other test pictures that are taken for it


class Skew(NamedTuple):
    """The class that clients' pictures are taken for much more often than the server's labels have it."""

    label: int
    taken: float  # share of the clients' pictures that are taken for it
    own: float  # share of the class among the server's labels
    is_of_all: bool  # whether all of the clients' pictures were counted; else the confident ones, no fair sample
    estimate: float | None  # share that really is, corrected by the model's errors on test pictures; None: unknown


def skew(run: Run) -> Skew | None:
    """Return the class that has outgrown its share of the labels, if one has.

    Of the sites' pictures a share q is taken for the class; of the class's test pictures a share r, of the others a
    share f. If sites differ from the test pictures in nothing but their class shares, q = s r + (1 - s) f, and s is the
    share that really is of the class. Where r and f are close, the model hardly tells the class, and s is unknown.
    """
    classes, labels = len(run.class_names), counts(run.world.get("server_classes"))
    sums = {name: _summed(run, name) for name in ("class_predictions", "class_histogram")}
    name = next((name for name, values in sums.items() if sum(values) >= ENOUGH), "")
    if not name or not sum(labels) or len(labels) != classes or classes < 2:
        return None
    taken = sums[name]
    shares = [count / sum(taken) - label / sum(labels) for count, label in zip(taken, labels, strict=True)]
    label = max(range(classes), key=lambda place: shares[place])
    if shares[label] < MORE:
        return None
    share = taken[label] / sum(taken)
    is_of_all = name == "class_predictions"
    estimate = _corrected(run.confusion, label, share) if is_of_all and run.confusion else None
    return Skew(label, share, labels[label] / sum(labels), is_of_all, estimate)


def skew_text(run: Run) -> str:
    """Return what the class shares of the clients' pictures say, in two sentences; empty if nothing."""
    found = skew(run)
    if found is None:
        return ""
    name = class_name(run.class_names[found.label])
    what = "the clients' pictures are taken for" if found.is_of_all else "the confident pseudo-labels are"
    text = f"{100 * found.taken:.0f} % of {what} {name}, but only {100 * found.own:.0f} % of the server's labels. "
    if any(fault.name == "one class" for fault in faults(run.outcome)):
        return f"{text}The test pictures show that the model has collapsed to one class."
    if found.estimate is None:
        why = "only the confident pictures were counted"
        if found.is_of_all and run.confusion:
            why = "the model hardly tells it from the others on test pictures"
        elif found.is_of_all:
            why = "the test pictures tell it when the run ends"
        return (
            f"{text}Whether the sites hold so much of it or the model collapses cannot be told, as {why}: "
            "look at some of the sites' pictures."
        )
    about = f"{100 * found.estimate:.0f} %"
    if found.estimate - found.own >= MORE / 2:
        return (
            f"{text}By the model's errors on test pictures about {about} are: the sites seem to hold more of it than "
            "the labels do, which is no fault of the model."
        )
    return f"{text}By the model's errors on test pictures only about {about} are: the model says it too often."


def _summed(run: Run, name: str) -> list[float]:
    """Return the pictures by class over the last rounds; empty where a round does not tell them all."""
    recent = [counts(each.get(name)) for each in run.rounds[-RECENT:]]
    if any(len(each) != len(run.class_names) for each in recent):
        return []
    return [sum(each) for each in zip(*recent, strict=True)]


def _corrected(confusion: list[list[float]], label: int, taken: float) -> float | None:
    others = [row for place, row in enumerate(confusion) if place != label]
    if label >= len(confusion) or not sum(confusion[label]) or not sum(map(sum, others)):
        return None
    found = confusion[label][label] / sum(confusion[label])
    wrongly = sum(row[label] for row in others) / sum(map(sum, others))
    if found - wrongly < TOLD_APART:
        return None
    return min(1.0, max(0.0, (taken - wrongly) / (found - wrongly)))

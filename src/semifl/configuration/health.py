"""Nothing wrong in silence: signs that a run goes astray, found without a client label, and what to do about them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from semifl.fields import Checked, Count, Range
from semifl.records.metrics import Metric
from semifl.records.record import Measured, number

Policy = Literal["warn", "skip", "stop"]

MESSAGES = {
    "not finite": "a loss or a weight is not a finite number: try a smaller method.lr or method.clip_norm = 1.0",
    "exploding": "the model moved much further than in the rounds before: try method.clip_norm or another aggregation",
    "nothing confident": "clients are confident about next to nothing: lower method.threshold, give the server more "
    "epochs or labels, or start from trained weights (model.weights)",
    "one class": "nearly all confident pseudo-labels are of one class: the model is collapsing",
    "agreement falling": "strong views agree less and less with their pseudo-labels: the model is getting worse",
    "below the start": "the model does worse on the labels held out than it did before any client took part",
    "rejected": "updates of clients were turned away; rounds.jsonl and events.jsonl say whose and why",
}


@dataclass(frozen=True)
class Health(Checked):
    """What to do about each sign: warn, skip the round's update, or stop the run."""

    nonfinite: Policy = "skip"  # a loss or a weight that is not a number
    exploding: Policy = "warn"  # an update many times longer than usual
    collapse: Policy = "warn"  # any of the slow signs
    explode_factor: Annotated[float, Range(1, open_least=True)] = 10.0  # times the median update of the rounds before
    patience: Count = 10  # rounds that a slow sign must last

    def alerts(self, record: Measured, history: Sequence[Measured], finite: bool, metric: Metric) -> list[str]:
        """The signs that a round shows; `finite` says whether its losses and the weights after it are."""
        recent = [*history[-2 * self.patience :], record]
        found = {
            "not finite": not finite,
            "exploding": self._explodes(record, history),
            "nothing confident": _lasts(recent, self.patience, _nothing_confident),
            "one class": _lasts(recent, 3, _one_class),
            "agreement falling": self._disagrees(recent),
            "below the start": _lasts(recent, self.patience, lambda each: _below(each, history, metric)),
            "rejected": bool(record["rejected"]),
        }
        return [name for name, present in found.items() if present]

    def policy(self, alerts: Sequence[str]) -> Policy:
        """The strictest that the alerts call for."""
        policies: list[Policy] = ["warn"]
        for alert in alerts:
            policies.append({"not finite": self.nonfinite, "exploding": self.exploding}.get(alert, self.collapse))
        return max(policies, key=("warn", "skip", "stop").index)

    def _explodes(self, record: Measured, history: Sequence[Measured]) -> bool:
        lengths = [float(each["update_norm"]) for each in history[-20:] if each["update_norm"]]
        length = float(record["update_norm"] or 0)
        return len(lengths) >= 3 and length > self.explode_factor * statistics.median(lengths)

    def _disagrees(self, recent: Sequence[Measured]) -> bool:
        """The mean over the last `patience` rounds lies a fifth below that of as many before."""
        shares = [each["agreement"] for each in recent if each["agreement"] is not None]
        if len(shares) < 2 * self.patience:
            return False
        earlier, later = shares[-2 * self.patience : -self.patience], shares[-self.patience :]
        return bool(statistics.mean(later) < 0.8 * statistics.mean(earlier))


def _lasts(recent: Sequence[Measured], rounds: int, sign: Any) -> bool:
    return len(recent) >= rounds and all(sign(record) for record in recent[-rounds:])


def _nothing_confident(record: Measured) -> bool:
    return record["label_ratio"] is not None and record["label_ratio"] < 0.01


def _one_class(record: Measured) -> bool:
    counts = record["class_histogram"]
    return len(counts) > 1 and sum(counts) >= 50 and max(counts) > 0.95 * sum(counts)


def _below(record: Measured, history: Sequence[Measured], metric: Metric) -> bool:
    key = f"validation_{metric}"
    first, now = (number(each.get(key)) for each in (history[0] if history else record, record))
    return first is not None and now is not None and now < first

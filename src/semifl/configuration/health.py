"""Nothing wrong in silence: signs that a run goes astray, found without a client label, and what to do about them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

from semifl.fields import Checked, Count, Range
from semifl.records.metrics import Metric
from semifl.records.record import Measured, number

Policy = Literal["warn", "skip", "fallback", "stop"]
STRICTER: tuple[Policy, ...] = ("warn", "skip", "fallback", "stop")

MESSAGES = {
    "not finite": "a loss or a weight is not a finite number: try a smaller method.lr or method.clip_norm = 1.0",
    "exploding": "the model moved much further than in the rounds before: try method.clip_norm or another aggregation",
    "nothing confident": 'clients are confident about next to nothing: take method.name = "balanced", give '
    "the server more epochs or labels, start from trained weights (model.weights), or lower method.threshold",
    "one class": "nearly all confident pseudo-labels are of one class: the model is collapsing, unless the sites hold "
    "little else, which labels held out (data.validation) would tell",
    "agreement falling": "strong views agree less and less with their pseudo-labels: the model is getting worse",
    "below the start": "the model does worse on the labels held out than it did before any client took part",
    "server loss rising": "the server's own loss is far above its lowest: what clients bring undoes what labels teach",
    "drifting": "nearly all pictures of clients are taken for one class, far from its share of the server's labels: "
    "the model begins to collapse, unless the sites hold little else, which labels held out (data.validation) would "
    "tell",
    "held-out falling": "the model does clearly worse on the labels held out than the best one so far",
    "rejected": "updates of clients were turned away; rounds.jsonl and events.jsonl say whose and why",
}


ACTIONS: dict[Policy, str] = {
    "warn": "the run goes on",
    "skip": "what the round brought is left out",
    "fallback": "the run goes back to its last sound model",
    "stop": "the run stops",
}
HARMLESS = ("nothing confident", "rejected")  # going back would not help
RISEN, BY_MORE_THAN = 2.0, 0.3  # times the lowest loss of the server, and nats
TAKEN = 0.75  # of the share that a class does not have by the server's labels


class Known(NamedTuple):
    """What a run knows beside its records."""

    metric: Metric = "accuracy"
    prior: tuple[float, ...] = ()  # share of each class among the server's labels
    held_out: int = 0  # labels


@dataclass(frozen=True)
class Health(Checked):
    """What to do about each sign: warn, skip the round's update, fall back to the last sound model, or stop the run."""

    nonfinite: Policy = "skip"  # a loss or a weight that is not a number
    exploding: Policy = "warn"  # an update many times longer than usual
    collapse: Policy = "warn"  # any of the other signs
    explode_factor: Annotated[float, Range(1, open_least=True)] = 10.0  # times the median update of the rounds before
    patience: Count = 10  # rounds that a slow sign must last

    def alerts(self, record: Measured, history: Sequence[Measured], finite: bool, known: Known) -> list[str]:
        """The signs that a round shows; `finite` says whether its losses and the weights after it are."""
        recent = [*history[-2 * self.patience :], record]
        found = {
            "not finite": not finite,
            "exploding": self._explodes(record, history),
            "nothing confident": _lasts(recent, self.patience, _nothing_confident),
            "one class": _lasts(recent, 3, lambda each: _one_class(each) and not _tells_apart(each)),
            "agreement falling": self._disagrees(recent),
            "below the start": _lasts(recent, self.patience, lambda each: _below(each, history, known.metric)),
            "server loss rising": _rises(record, history),
            "drifting": _lasts(recent, 2, lambda each: _drifts(each, known.prior) and not _tells_apart(each)),
            "held-out falling": _falls(record, history, known),
            "rejected": bool(record["rejected"]),
        }
        return [name for name, present in found.items() if present]

    def policy(self, alerts: Sequence[str]) -> Policy:
        """The strictest that the alerts call for."""
        return max((self.policy_of(alert) for alert in alerts), key=STRICTER.index, default="warn")

    def policy_of(self, alert: str) -> Policy:
        wanted: Policy = {"not finite": self.nonfinite, "exploding": self.exploding}.get(alert, self.collapse)
        return "warn" if wanted == "fallback" and alert in HARMLESS else wanted

    @property
    def may_fall_back(self) -> bool:
        return "fallback" in (self.nonfinite, self.exploding, self.collapse)

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


def _tells_apart(record: Measured) -> bool:
    """Return True if the model finds the classes of labels held out: then one-sided pseudo-labels are the sites' own.

    A model that says one class only has a balanced accuracy of 100 / classes; halfway from there to 100 is enough.
    """
    found, classes = number(record.get("validation_balanced_accuracy")), len(record["class_histogram"])
    return found is not None and classes > 1 and found >= (100 / classes + 100) / 2


def _below(record: Measured, history: Sequence[Measured], metric: Metric) -> bool:
    key = f"validation_{metric}"
    first, now = (number(each.get(key)) for each in (history[0] if history else record, record))
    return first is not None and now is not None and now < first


def _rises(record: Measured, history: Sequence[Measured]) -> bool:
    """The server's loss is twice its lowest and clearly more, in this round."""
    earlier = [loss for each in history if (loss := number(each.get("server_loss"))) is not None]
    now = number(record.get("server_loss"))
    return bool(earlier) and now is not None and now > max(RISEN * min(earlier), min(earlier) + BY_MORE_THAN)


def _drifts(record: Measured, prior: Sequence[float]) -> bool:
    """One class has taken most of what is not its own by the server's labels, of all pictures, confident or not."""
    named: dict[str, Any] = {**record}
    counts = named.get("class_predictions") or []
    if len(counts) != len(prior) or sum(counts) < 50:
        return False
    return any(count / sum(counts) > share + TAKEN * (1 - share) for count, share in zip(counts, prior, strict=True))


def _falls(record: Measured, history: Sequence[Measured], known: Known) -> bool:
    """Below the best so far by more than two standard errors of as many labels."""
    key = f"validation_{known.metric}"
    now, *earlier = (number(each.get(key)) for each in (record, *history))
    best = max((value for value in earlier if value is not None), default=None)
    if now is None or best is None or not known.held_out:
        return False
    return now < best - 2 * 100 * math.sqrt(0.25 / known.held_out)

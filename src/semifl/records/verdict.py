"""What the numbers of result.json say in words, once for terminal, report, model card and Python. No torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from semifl.intervals import Interval, PairedDifference
from semifl.records.faults import Fault
from semifl.records.metrics import OF_A_MODEL, WORDS, metric_of, of_the_kept, said
from semifl.records.record import number

BASELINES = ("labels_only_", "plain_labels_only_")  # prefixes of the models trained without clients
OF_LABELS = "a labels-only model trained on all labels"  # what the guard may keep


def baseline(outcome: Mapping[str, Any]) -> str | None:
    """Return the prefix of the better labels-only model, by the metric that decides; None if none was trained."""
    metric = metric_of(outcome)
    reached = {prefix: number(outcome.get(f"{prefix}{metric}")) for prefix in BASELINES}
    known = {prefix: value for prefix, value in reached.items() if value is not None}
    return max(known, key=lambda prefix: known[prefix], default=None)


def labels_only(outcome: Mapping[str, Any], metric: str) -> float | None:
    """Return a number of the better labels-only model; `metric` may begin with best_."""
    prefix = baseline(outcome)
    name = metric.removeprefix("best_").removeprefix("test_")
    return None if prefix is None else number(outcome.get(f"{prefix}{name}"))


def interval(outcome: Mapping[str, Any], key: str) -> Interval | None:
    """Return the 95 % interval of a number of result.json, if it has one."""
    table = outcome.get("intervals")
    ends = _numbers(table.get(key) if isinstance(table, dict) else None, 2)
    return Interval(*ends) if ends else None


def with_interval(outcome: Mapping[str, Any], key: str) -> str:
    """Return a number of result.json for people: '81.7 % [76.9, 85.7]'."""
    ends = interval(outcome, key)
    return said(key, number(outcome.get(key))) + (f" {ends}" if ends else "")


def difference(outcome: Mapping[str, Any], metric: str) -> PairedDifference | None:
    """Return how much better the kept model is than the better labels-only model, if both answers were compared."""
    table = outcome.get("difference")
    ends = _numbers(table.get(metric) if isinstance(table, dict) else None, 3)
    return PairedDifference(*ends) if ends else None


def faults(outcome: Mapping[str, Any]) -> list[Fault]:
    """Return what is wrong with the kept model, the gravest first."""
    return read_faults(outcome.get("faults"))


def read_faults(table: Any) -> list[Fault]:
    """Return the faults in what a file says; files may say anything."""
    rows = [row for row in table if isinstance(row, dict)] if isinstance(table, list) else []
    found = [[str(row.get(name, "")) for name in Fault._fields] for row in rows]
    return [Fault(*texts) for texts in found if all(text and text.isprintable() for text in texts)]


def comparison(outcome: Mapping[str, Any]) -> str:
    """Return one sentence on whether the clients helped, or how good the model is where nothing tells that."""
    metric, prefix = metric_of(outcome), of_the_kept(outcome)
    key = f"{prefix}{metric}"
    value, alone = number(outcome.get(key)), labels_only(outcome, metric)
    pictures = number(outcome.get("test_examples"))
    where = f" on {pictures:.0f} test pictures" if pictures else ""
    if is_of_labels(outcome):
        reached = f"{WORDS[metric]} {with_interval(outcome, key)}{where}"
        return f"The clients were no clear gain on held-out labels, so a model of labels alone was kept: {reached}."
    if value is None or alone is None:
        return f"{_capital(WORDS[metric])} {with_interval(outcome, key)}{where}."
    gap = difference(outcome, metric)
    if gap is None:
        return f"Compared with labels alone: {WORDS[metric]} {value - alone:+.1f} points, without an interval."
    if not gap.is_clear:
        return f"Cannot be told from labels alone: {WORDS[metric]} {gap}{where}."
    return f"{'Better' if gap.value > 0 else 'Worse'} than labels alone: {WORDS[metric]} {gap}{where}."


def verdict(outcome: Mapping[str, Any]) -> list[str]:
    """Return the first lines about a run: what is wrong with its model by name, then whether the clients helped.

    The latter is left out of a model that nobody should use.
    """
    found = faults(outcome)
    says_it = any(fault.name in ("one class", "worse than labels only") for fault in found)
    return [*(fault.sentence for fault in found), *([] if says_it else [comparison(outcome)])]


def parts_of_the_gain(outcome: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the models that tell a method's use of the labels from its clients' work, and what each reaches."""
    metric = metric_of(outcome)
    if number(outcome.get(f"plain_labels_only_{metric}")) is None:
        return []
    return [
        ("labels alone, trained the plain way", with_interval(outcome, f"plain_labels_only_{metric}")),
        ("labels alone, trained this method's way", with_interval(outcome, f"labels_only_{metric}")),
        ("labels and clients", with_interval(outcome, f"{of_the_kept(outcome)}{metric}")),
    ]


def other_numbers(outcome: Mapping[str, Any]) -> list[str]:
    """Return the kept model's numbers beside the one that decides, each with its interval."""
    prefix, metric = of_the_kept(outcome), metric_of(outcome)
    names = [name for name in OF_A_MODEL if name != metric and number(outcome.get(f"{prefix}{name}")) is not None]
    return [f"{WORDS[name]} {with_interval(outcome, f'{prefix}{name}')}" for name in names]


def is_of_labels(outcome: Mapping[str, Any]) -> bool:
    """Return True if the guard has kept a labels-only model."""
    guard = outcome.get("guard")
    return isinstance(guard, dict) and guard.get("kept") == OF_LABELS


def model_of(outcome: Mapping[str, Any], prefix: str = "") -> str:
    """Return which model the numbers with this prefix are of: 'the final model', or 'round 5'."""
    number_of = outcome.get("best_round")
    return f"round {number_of}" if prefix and isinstance(number_of, int) else "the final model"


def _numbers(values: Any, count: int) -> list[float]:
    found = [number(value) for value in values] if isinstance(values, list) else []
    return [each for each in found if each is not None] if len(found) == count and None not in found else []


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]

"""Help where people get stuck: what a run's numbers say went wrong, and what to try. No torch here."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from semifl.configuration.health import MESSAGES
from semifl.federation.signals import BINS
from semifl.records.faults import OFTEN_WRONG
from semifl.records.metrics import metric_of, said, said_probability
from semifl.records.record import number
from semifl.records.verdict import difference, faults, model_of
from semifl.report.groups import Group, mean
from semifl.report.reading import EVEN, Run, clients, counts
from semifl.report.skew import skew_text

ENOUGH_ROUNDS = 3  # before anything is said about what clients believe
RECENT = 10  # rounds that are looked at
FEW = 0.05  # share of confident pictures below which a run lives on next to nothing
UNEVEN = 5.0  # points of balanced accuracy by which a chosen threshold is better than the likelier class
FALLEN = 5.0  # points between the best and the last model
ODD = 0.15  # mean confidence below the others' in the same rounds


class SiteStanding(NamedTuple):
    """How a client's mean confidence compares with the middle of those asked in the same rounds."""

    client: int
    confidence: float  # in the last round it took part in
    gap: float  # mean over its last rounds


def advise(run: Run) -> list[str]:
    """Return what to do beside the faults of the model, the most pressing first; nothing if nothing is amiss."""
    of_learning = (_alerts, _nothing_confident, _one_class, _fallen, _not_told, _odd_sites)
    checks = (*of_learning, _by_threshold, _losses, _never_asked)
    return [sentence for check in checks for sentence in check(run)]


def advise_together(groups: Sequence[Group]) -> list[str]:
    """What only several kinds of runs tell: whether a backbone without any client beats clients without a backbone."""
    metric = groups[0].metric
    sentences = []
    for group in groups:
        alone = mean(group.alone(metric))
        if not _has_backbone(group.runs[0]) or alone is None:
            continue
        for other in groups:
            reached = mean(other.reached(metric))
            same_task = _task(group) == _task(other) and other.metric == metric
            if same_task and not _has_backbone(other.runs[0]) and reached is not None and reached <= alone:
                sentences.append(
                    f"The labels alone, on the backbone of {group.label}, reach {said(metric, alone)}: no less than "
                    f"{other.label} has with its clients and without a backbone ({said(metric, reached)}). "
                    "Start from the backbone, and see what clients add to it."
                )
    return sentences


def _has_backbone(run: Run) -> bool:
    return run.settings.get("model.name") == "pretrained"


def _task(group: Group) -> tuple[Any, ...]:
    """What two runs must have in common to have learned the same from as many labels."""
    settings = group.runs[0].settings
    return tuple(settings.get(f"data.{key}") for key in ("name", "root", "labeled"))


def _alerts(run: Run) -> Iterator[str]:
    """What the run itself warned of in its last rounds, as far as nothing below says it better."""
    recent = {word for record in run.rounds[-RECENT:] for word in _words(record.get("alerts"))}
    said_below = {"nothing confident", "one class", "drifting", "rejected"}
    for alert in (alert for alert in MESSAGES if alert in recent - said_below):
        yield f"{MESSAGES[alert][0].upper()}{MESSAGES[alert][1:]}."


def _nothing_confident(run: Run) -> Iterator[str]:
    shares = list(run.series("label_ratio").values())
    if len(shares) < ENOUGH_ROUNDS:
        return
    recent = shares[-RECENT:]
    share = statistics.fmean(recent)
    if share >= FEW:
        return
    what = "nothing" if share == 0 else f"next to nothing ({100 * share:.1f} % of their pictures)"
    yield (
        f"Clients were confident about {what} in the last {len(recent)} rounds, so they taught the model "
        f"{'nothing' if share == 0 else 'little'}. {_remedies(run)}"
    )


def _remedies(run: Run) -> str:
    threshold, epochs = run.settings.get("method.threshold"), run.settings.get("method.server_epochs")
    lower = "" if threshold is None else f", or lower method.threshold (now {threshold})"
    more = "Give the server more epochs" + (f" (method.server_epochs, now {epochs})" if epochs is not None else "")
    other = "" if _is_balanced(run) else 'Take method.name = "balanced", which has no threshold. Or: '
    return f"{other}{more} or labels, start from trained weights (model.weights), or train for more rounds{lower}."


def _one_class(run: Run) -> Iterator[str]:
    """Clients' pictures of one class: normal for the sites, or a collapse, as far as the test pictures tell."""
    is_faulty = any(fault.name == "one class" for fault in faults(run.outcome))
    if len(run.rounds) >= ENOUGH_ROUNDS and not is_faulty and (text := skew_text(run)):
        yield text


def _is_balanced(run: Run) -> bool:
    return run.settings.get("method.name") == "balanced"


def _fallen(run: Run) -> Iterator[str]:
    metric = metric_of(run.settings)
    last, best = number(run.result.get(metric)), number(run.result.get(f"best_{metric}"))
    chosen = number(run.settings.get("data.validation"))  # then the best model is the one that was kept
    if last is not None and best is not None and best - last >= FALLEN and not chosen:
        yield (
            f"The final model is {best - last:.1f} points worse on the test pictures than "
            f"{model_of(run.result, 'best_')}. "
            "Hold out some labels (data.validation) so that the best model is kept, or lower method.lr."
        )


def _not_told(run: Run) -> Iterator[str]:
    """What to do where a model cannot be told from labels alone."""
    gap, pictures = difference(run.outcome, metric_of(run.settings)), number(run.outcome.get("test_examples"))
    is_useless = any(fault.name == "one class" for fault in faults(run.outcome))
    if gap is None or gap.is_clear or not pictures or is_useless:
        return
    yield (
        f"{pictures:.0f} test pictures show a difference from labels alone only from about "
        f"{(gap.high - gap.low) / 2:.0f} points on: add test pictures, or run more seeds and put them side by side "
        "with 'semifl compare'."
    )
    confident = list(run.series("confident_accuracy").values())[-RECENT:]
    if confident and statistics.fmean(confident) < OFTEN_WRONG:
        better = "" if _has_backbone(run) else ' (for photographs model.name = "pretrained")'
        other = "" if _is_balanced(run) else ', take method.name = "balanced", or raise method.threshold'
        wrong = f"Of the confident pseudo-labels only {statistics.fmean(confident):.0f} % were right"
        yield f"{wrong}: start from a better model{better}{other}."


def standings(run: Run) -> list[SiteStanding]:
    """Each client against the middle of its cohorts: rounds differ, so only the same round is compared."""
    gaps: dict[int, list[float]] = {}
    latest: dict[int, float] = {}
    for record in run.rounds:
        means = {client: mean_confidence(bins) for client, bins in histograms(record).items()}
        for client, own in means.items():
            latest[client] = own
            if len(means) >= 3:
                gaps.setdefault(client, []).append(own - statistics.median(means.values()))
    return [SiteStanding(client, latest[client], statistics.fmean(all_[-5:])) for client, all_ in sorted(gaps.items())]


def odd_sites(run: Run) -> list[SiteStanding]:
    """Clients whose confidence lies far below the others'."""
    everyone = standings(run)
    if len(everyone) < 4:
        return []
    spread = 1.4826 * statistics.median(abs(each.gap) for each in everyone)
    return [each for each in everyone if each.gap < -max(ODD, 4 * spread)]


def _odd_sites(run: Run) -> Iterator[str]:
    odd = odd_sites(run)
    if odd:
        named = ", ".join(f"{run.site_name(each.client)} ({each.confidence:.2f})" for each in odd[:5])
        more = f" and {len(odd) - 5} others" if len(odd) > 5 else ""
        yield (
            f"The model is much less sure at {named}{more} than at the other sites: they may hold classes that the "
            "server has never seen, or pictures of another kind. Look at some of them, and label a few at the server."
        )


def _by_threshold(run: Run) -> Iterator[str]:
    """Where the likelier class is a worse answer than the threshold that labels held out have chosen."""
    names = ("decision_threshold", "sensitivity", "specificity", "balanced_accuracy")
    at, found, spared, likelier = (number(run.of_the_kept(name)) for name in names)
    if at is None or found is None or spared is None or likelier is None:
        return
    at_threshold = (found + spared) / 2
    if at != EVEN and at_threshold - likelier >= UNEVEN:
        yield (
            f"By the likelier class the model finds {likelier:.1f} % of a class on average, and {at_threshold:.1f} % "
            f"at its decision threshold of {said_probability(at)}: let it answer by that with "
            "'semifl predict RUN --threshold chosen'."
        )


def _losses(run: Run) -> Iterator[str]:
    words = {"failed": "failed", "rejected": "were turned away", "late": "came late"}
    lost = {key: sum(len(clients(record, key)) for record in run.rounds) for key in words}
    said = [f"{count} {words[key]}" for key, count in lost.items() if count]
    if said:
        yield f"Of the clients' replies {', '.join(said)}; events.jsonl says whose and why."


def _never_asked(run: Run) -> Iterator[str]:
    asked = {client for record in run.rounds for client in clients(record, "cohort")}
    never = run.client_count - len(asked)
    if run.is_finished and asked and never > 0:
        yield (
            f"{never} of {run.client_count} clients {'was' if never == 1 else 'were'} never asked: "
            "train for more rounds or raise method.activity_rate."
        )


def histograms(record: dict[str, object]) -> dict[int, list[float]]:
    """Counts of pictures by confidence in ten equal steps, for each client of the cohort that told them."""
    listed = record.get("confidence_histograms")
    if not isinstance(listed, list):
        return {}
    by_client = zip(clients(record, "cohort"), (counts(each) for each in listed), strict=False)
    return {client: bins for client, bins in by_client if len(bins) == BINS and sum(bins) > 0}


def mean_confidence(bins: list[float]) -> float:
    edges = pairwise(i / BINS for i in range(BINS + 1))
    return sum((low + high) / 2 * count for (low, high), count in zip(edges, bins, strict=True)) / sum(bins)


def _words(value: object) -> list[str]:
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []

"""Help where people get stuck: what a run's numbers say went wrong, and what to try. No torch here."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from semifl.configuration.health import MESSAGES
from semifl.federation.signals import BINS
from semifl.records.metrics import WORDS, metric_of, said, said_probability
from semifl.records.record import number
from semifl.report.groups import Group
from semifl.report.reading import EVEN, Run, clients, counts

ENOUGH_ROUNDS = 3  # before anything is said about what clients believe
RECENT = 10  # rounds that are looked at
FEW = 0.05  # share of confident pictures below which a run lives on next to nothing
AS_GOOD = 0.5  # points of accuracy that do not count as a gain
UNEVEN = 5.0  # points between accuracy and balanced accuracy
SELDOM = 0.5  # of the mean recall: a class that is hardly ever found
FALLEN = 5.0  # points between the best and the last model
ODD = 0.15  # mean confidence below the others' in the same rounds


class SiteStanding(NamedTuple):
    """How a client's mean confidence compares with the middle of those asked in the same rounds."""

    client: int
    confidence: float  # in the last round it took part in
    gap: float  # mean over its last rounds


def advise(run: Run) -> list[str]:
    """Sentences, the most pressing first; none if nothing is amiss."""
    of_learning = (_alerts, _nothing_confident, _one_class, _fallen, _no_gain, _odd_sites)
    checks = (*of_learning, _by_threshold, _uneven, _losses, _never_asked)
    return [sentence for check in checks for sentence in check(run)]


def advise_together(groups: Sequence[Group]) -> list[str]:
    """What only several kinds of runs tell: whether a backbone without any client beats clients without a backbone."""
    metric = groups[0].metric
    sentences = []
    for group in groups:
        alone = group.result(f"labels_only_{metric}")
        if not _has_backbone(group.runs[0]) or alone is None:
            continue
        for other in groups:
            reached = other.result(metric)
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
    said_below = {"nothing confident", "one class", "rejected"}
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
    recent = [counts(record.get("class_histogram")) for record in run.rounds[-ENOUGH_ROUNDS:]]
    if len(recent) < ENOUGH_ROUNDS or any(len(each) < 2 or sum(each) < 50 for each in recent):
        return
    if all(max(each) > 0.95 * sum(each) for each in recent):
        label = recent[-1].index(max(recent[-1]))
        yield (
            f"Nearly all confident pseudo-labels are of one class ({_name(run, label)}): the model is collapsing. "
            f"{_another_method(run)}, or label more pictures of the other classes."
        )


def _is_balanced(run: Run) -> bool:
    return run.settings.get("method.name") == "balanced"


def _another_method(run: Run) -> str:
    """What has helped where others collapsed: results/remedies."""
    if _is_balanced(run):
        return "Let fewer epochs pass at the clients (method.client_epochs)"
    return 'Take method.name = "balanced", or else give the server three times the epochs (method.server_epochs)'


def _fallen(run: Run) -> Iterator[str]:
    metric = metric_of(run.settings)
    last, best = number(run.result.get(metric)), number(run.result.get(f"best_{metric}"))
    chosen = number(run.settings.get("data.validation"))  # then the best model is the one that was kept
    if last is not None and best is not None and best - last >= FALLEN and not chosen:
        yield (
            f"The last model is {best - last:.1f} points worse than that of round {run.result.get('best_round')}. "
            "Hold out some labels (data.validation) so that the best model is kept, or lower method.lr."
        )


def _no_gain(run: Run) -> Iterator[str]:
    metric = metric_of(run.settings)
    last, alone = number(run.of_the_kept(metric)), number(run.result.get(f"labels_only_{metric}"))
    plain = number(run.result.get(f"plain_labels_only_{metric}"))
    by = ""
    if alone is not None and plain is not None and plain > alone:  # then nobody needs the method's use of the labels
        alone, by = plain, "weak views of "
    if last is None or alone is None or last - alone >= AS_GOOD:
        return
    confident = list(run.series("confident_accuracy").values())[-RECENT:]
    hint = "train for more rounds, or see in the pseudo-label curves whether clients believe too little or too much"
    if not _is_balanced(run):
        hint = f'take method.name = "balanced", {hint}'
    if confident and statistics.fmean(confident) < 80:
        better = "" if _has_backbone(run) else ' (for photographs model.name = "pretrained")'
        hint = f"confident pseudo-labels are often wrong, so start from a better model{better}" + (
            "" if _is_balanced(run) else ', take method.name = "balanced", or raise method.threshold'
        )
    than = "no better than" if last > alone - AS_GOOD else f"{alone - last:.1f} points worse than"
    of = "" if metric == "accuracy" else f"{WORDS[metric]} "
    yield f"The model is {than} one trained on {by}the labels alone ({of}{last:.1f} against {alone:.1f} %): {hint}."


def standings(run: Run) -> list[SiteStanding]:
    """Each client against the middle of its cohorts: rounds differ, so only the same round is compared."""
    gaps: dict[int, list[float]] = {}
    latest: dict[int, float] = {}
    for record in run.rounds:
        means = {client: mean_confidence(bins) for client, bins in histograms(record).items()}
        for client, mean in means.items():
            latest[client] = mean
            if len(means) >= 3:
                gaps.setdefault(client, []).append(mean - statistics.median(means.values()))
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
    mean = (found + spared) / 2
    if at != EVEN and mean - likelier >= UNEVEN:
        yield (
            f"By the likelier class the model finds {likelier:.1f} % of a class on average, and {mean:.1f} % at its "
            f"decision threshold of {said_probability(at)}: let it answer by that with "
            "'semifl predict RUN --threshold chosen'."
        )


def _uneven(run: Run) -> Iterator[str]:
    """By the rule that the model is used with: what the likelier class misses, a chosen threshold may find."""
    is_whole = len(run.confusion) == len(run.class_names) and run.is_counted_by_its_rule
    rows = run.confusion if is_whole else []
    at = "" if run.counted_at in (None, EVEN) else f" (at its decision threshold of {said_probability(run.counted_at)})"
    found = {place: row[place] / sum(row) for place, row in enumerate(rows) if sum(row)}
    mean = statistics.fmean(found.values()) if found else 0.0
    worst = min(found, key=lambda place: found[place], default=0)
    if found and found[worst] < SELDOM * mean:
        yield (
            f"Of the test pictures of {_name(run, worst)} the final model finds {100 * found[worst]:.0f} %, of a class "
            f"on average {100 * mean:.0f} %{at}: more labels of it help."
        )
        return
    if number(run.of_the_kept("decision_threshold")) not in (None, EVEN):  # these two are by the likelier class
        return
    last, balanced = number(run.of_the_kept("accuracy")), number(run.of_the_kept("balanced_accuracy"))
    if last is not None and balanced is not None and abs(last - balanced) >= UNEVEN:
        yield (
            f"Classes are not learned evenly: accuracy is {last:.1f} %, but the mean over classes {balanced:.1f} %. "
            "The confusion matrix shows which ones suffer; more labels of these help."
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


def _name(run: Run, label: int) -> str:
    return run.class_names[label] if label < len(run.class_names) else str(label)

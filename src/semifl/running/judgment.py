"""What the test pictures say of the model that is kept: intervals, the difference from labels alone, and its faults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from semifl.intervals import Interval, paired_differences, wilson
from semifl.learning.evaluation import Score
from semifl.records.faults import FinalModel, Threshold, find_faults
from semifl.records.metrics import of_the_kept
from semifl.records.predictions import NAME, write_predictions
from semifl.records.record import Summary, number
from semifl.records.verdict import baseline, difference, is_of_labels
from semifl.running.context import RunContext
from semifl.running.labels_only import Baselines
from semifl.trained.assessment import confusion_by
from semifl.trained.prediction import Rule

RECENT = 10  # rounds whose pseudo-labels count
MODELS = {"labels_only_": "all", "plain_labels_only_": "plain"}  # baselines, by the prefix of their numbers


def judge_final(context: RunContext, result: Summary, last: Score, kept: Score, baselines: Baselines) -> None:
    """Add evidence, intervals, difference and faults to the result, and write predictions.npz.

    Parameters
    ----------
    last : Score. Of the final model.
    kept : Score. Of the model in model.safetensors, which may be that of an earlier round.
    """
    alone = {prefix: baselines[which].test for prefix, which in MODELS.items() if which in baselines}
    scores = {"": last, of_the_kept(result): kept, **alone}
    intervals = {
        f"{prefix}{name}": ends
        for prefix, score in scores.items()
        for name, ends in intervals_of(context, score, result, prefix).items()
    }
    result["evidence"], result["test_examples"] = "measured", kept.count
    result["intervals"] = {name: [round(end, 6) for end in ends] for name, ends in intervals.items()}
    best = alone.get(baseline(result) or "")
    if best:
        gaps = paired_differences(kept.probabilities.numpy(), best.probabilities.numpy(), kept.labels.numpy())
        result["difference"] = {name: [round(each, 6) for each in gap] for name, gap in gaps.items()}
    result["faults"] = [fault._asdict() for fault in find_faults(_final_model(context, result, kept, best))]
    models = {"model": kept, **{prefix.rstrip("_"): score for prefix, score in alone.items()}}
    answers = {name: score.probabilities.numpy() for name, score in models.items()}
    write_predictions(context.directory.path / NAME, kept.labels.numpy(), answers)


def intervals_of(context: RunContext, score: Score, result: Mapping[str, Any], prefix: str) -> dict[str, Interval]:
    """Return the intervals of a model's numbers by name; of two classes also at its decision threshold."""
    counts, threshold = counted(context, score, result, prefix)
    found = dict(score.intervals)
    if threshold is not None:
        for name, place in (("sensitivity", context.positive), ("specificity", 1 - context.positive)):
            found[name] = wilson(counts[place][place], sum(counts[place]))
    return found


def counted(
    context: RunContext, score: Score, result: Mapping[str, Any], prefix: str | None = None
) -> tuple[list[list[int]], float | None]:
    """Return a model's confusion matrix, of two classes at its decision threshold, and that threshold."""
    threshold = number(result.get(f"{of_the_kept(result) if prefix is None else prefix}decision_threshold"))
    if threshold is None:
        return score.confusion.tolist(), None
    return confusion_by(Rule(context.positive, threshold), score).tolist(), threshold


def _final_model(context: RunContext, result: Summary, kept: Score, alone: Score | None) -> FinalModel:
    facts, method, labels = context.world.data.facts, context.world.config.method, context.world.division.server
    rounds = context.directory.rounds()[-RECENT:]
    right = [value for each in rounds if (value := number(each.get("confident_accuracy"))) is not None]
    best = None
    if facts.classes == 2:
        best = Threshold(*kept.decision(context.positive, kept.best_threshold(context.positive)))
    return FinalModel(
        class_names=facts.class_names,
        confusion=counted(context, kept, result)[0],
        metric=context.metric,
        auc=kept.auc,
        positive=context.positive if facts.classes == 2 else 0,
        best_threshold=best,
        labels=context.world.data.labels[labels].bincount(minlength=facts.classes).tolist(),
        alone=None if alone is None else counted(context, alone, result, baseline(result))[0],
        difference=difference(result, context.metric),
        method=method.name,
        client_epochs=getattr(method.thing, "client_epochs", None),
        pseudo_accuracy=sum(right) / len(right) if right else None,
        is_of_labels=is_of_labels(result),
    )

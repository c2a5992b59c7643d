"""What the test pictures say of the model that is kept: intervals, the difference from labels alone, and its faults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from semifl.intervals import Interval, paired_differences, wilson
from semifl.learning.evaluation import Score
from semifl.records.faults import FinalModel, Threshold, find_faults
from semifl.records.metrics import of_the_kept
from semifl.records.predictions import NAME, write_predictions
from semifl.records.record import JSON, Summary, number
from semifl.records.verdict import baseline, difference, is_of_labels
from semifl.running.context import RunContext
from semifl.running.labels_only import Baselines, scores_alone
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
    result["evidence"], result["test_examples"] = "measured", kept.count
    result["intervals"] = intervals_of(context, {"": last, of_the_kept(result): kept, **alone}, result)
    best = alone.get(baseline(result) or "")
    if best:
        gaps = paired_differences(kept.probabilities.numpy(), best.probabilities.numpy(), kept.labels.numpy())
        result["difference"] = {name: [round(each, 6) for each in gap] for name, gap in gaps.items()}
    result["faults"] = [fault._asdict() for fault in find_faults(_final_model(context, result, kept, best))]
    models = {"model": kept, **{prefix.rstrip("_"): score for prefix, score in alone.items()}}
    answers = {name: score.probabilities.numpy() for name, score in models.items()}
    write_predictions(context.directory.path / NAME, kept.labels.numpy(), answers)


def judge_alone(context: RunContext, baselines: Baselines) -> JSON:
    """Return the numbers of the labels-only models and their intervals, as labels_only.json has them."""
    numbers = scores_alone(context, baselines)
    alone = {prefix: baselines[which].test for prefix, which in MODELS.items() if which in baselines}
    return {"metric": context.metric, **numbers, "intervals": intervals_of(context, alone, numbers)}


def intervals_of(
    context: RunContext, scores: Mapping[str, Score], numbers: Mapping[str, Any]
) -> dict[str, list[float]]:
    """Return the intervals of models' numbers by name; `scores` are by the prefix of these names."""
    found: dict[str, Interval] = {}
    for prefix, score in scores.items():
        found |= {f"{prefix}{name}": ends for name, ends in score.intervals.items()}
        rows, threshold = confusion_at_threshold(context, score, numbers, prefix)
        if threshold is not None:
            for name, at in (("sensitivity", context.positive), ("specificity", 1 - context.positive)):
                found |= {f"{prefix}{name}": wilson(rows[at][at], sum(rows[at]))} if sum(rows[at]) else {}
    return {name: [round(end, 6) for end in ends] for name, ends in found.items()}


def confusion_at_threshold(
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
        confusion=confusion_at_threshold(context, kept, result)[0],
        metric=context.metric,
        auc=kept.auc,
        positive=context.positive if facts.classes == 2 else 0,
        best_threshold=best,
        labels=context.world.data.labels[labels].bincount(minlength=facts.classes).tolist(),
        alone=None if alone is None else confusion_at_threshold(context, alone, result, baseline(result))[0],
        difference=difference(result, context.metric),
        method=method.name,
        client_epochs=getattr(method.thing, "client_epochs", None),
        pseudo_accuracy=sum(right) / len(right) if right else None,
        is_of_labels=is_of_labels(result),
    )

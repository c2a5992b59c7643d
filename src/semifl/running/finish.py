"""How a run ends: the final model, the one that is kept, and the summary."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, cast

import torch

from semifl.durable import copy_file
from semifl.learning import batchnorm
from semifl.learning.evaluation import Score
from semifl.learning.metrics import reliability
from semifl.learning.tensorfile import read_tensors
from semifl.learning.weights import Snapshot
from semifl.records.metrics import OF_A_MODEL, Metric, shown
from semifl.records.record import JSON, Measured, RoundRecord, Summary, is_best, number
from semifl.records.verdict import OF_LABELS
from semifl.regular import remove_folder
from semifl.running.context import FEATURES, RunContext
from semifl.running.gallery import write_gallery
from semifl.running.guard import OF_CLIENTS, Guard, beats
from semifl.running.judgment import confusion_at_threshold, judge_final
from semifl.running.labels_only import Baselines, scores_alone
from semifl.running.modelcard import write_model_card
from semifl.running.recording import measure
from semifl.trained.modelfile import note_in_model, save_model


def finish(context: RunContext, last: int, state: Any, baselines: Baselines, guard: Guard | None) -> Summary:
    """The final model, its scores, and the summary of the run."""
    context.tally.reset()
    began = time.perf_counter()
    t = context.round_at(last + 1, last)
    model, kept = context.method.finish(t, state, context.server.at(t), context.clients()), ""
    if guard:
        model, kept = _choose(context, model, baselines, guard)
    context.test(model)
    if kept == OF_LABELS:
        context.tally.validation = None  # it has learned from these labels, so they say nothing about it
    final = measure(t, context.tally, 0.0, context.positive)
    last_score = context.tally.score
    assert last_score is not None
    history: list[RoundRecord] = context.directory.rounds()
    best = is_best(final.get(f"validation_{context.metric}"), history, context.metric)
    held_out = bool(context.world.config.split.validation)
    if held_out and context.directory.model.is_file():
        # Should the run be given more rounds, it goes on with the best of those it had.
        copy_file(context.directory.model, context.directory.best_of_rounds)
    is_last = bool(guard) or not held_out or best
    if is_last:
        keep_model(context, final)
    kept_score = last_score if is_last else context.server.grade(read_snapshot(context), "test")
    result = summary(context, history, final, baselines, time.perf_counter() - began)
    result["kept"] = "best" if held_out and not guard else "last"
    if guard:
        result["guard"] = {"kept": kept, "fallbacks": guard.fallbacks}
    judge_final(context, result, last_score, kept_score, baselines)
    note_in_model(context.directory.model, faults=result["faults"])
    context.directory.write_facts("confusion.json", _in_detail(context, kept_score, result))
    write_model_card(context, result)
    # Real sites' pictures stay out of a page that may be passed on; those of a data set divided here may be shown.
    write_gallery(context, model, t.index, of_clients=not context.world.data.sites)
    remove_folder(context.directory.checkpoints / FEATURES)  # they serve no other run
    # Last: it marks a finished run, and whatever a kill leaves undone before it is done again by a resume.
    context.directory.write_summary(result)
    return result


def read_snapshot(context: RunContext) -> Snapshot:
    """Return the model that model.safetensors holds."""
    network = context.place.network
    network.module.load_state_dict(read_tensors(context.directory.model).tensors)
    named = batchnorm.layers(network.module)
    stats = {
        name: batchnorm.Moments(0, layer.running_mean.clone(), layer.running_var.clone())
        for name, layer in named.items()
        if layer.running_mean is not None and layer.running_var is not None
    }
    return Snapshot(network.weights(), stats)


def write_world(context: RunContext) -> None:
    """What the report shows beside the rounds, from the first one on: who holds how much."""
    data, division = context.world.data, context.world.division
    names = list(data.facts.class_names)
    counts = torch.bincount(data.labels[division.server], minlength=len(names))
    world = {
        "class_names": names,
        "server_classes": counts.tolist(),
        "client_pictures": context.client_pictures,
        "sites": list(data.sites),
    }
    context.directory.write_facts("world.json", world)


def _in_detail(context: RunContext, score: Score, result: Summary) -> JSON:
    """Which classes the kept model confuses, of two at its threshold, and how often it is right when how sure."""
    bins = [each._asdict() for each in reliability(score.probabilities, score.labels)]
    counts, threshold = confusion_at_threshold(context, score, result)
    return {"counts": counts, **({} if threshold is None else {"threshold": threshold}), "reliability": bins}


def keep_model(context: RunContext, record: Measured) -> None:
    """The tested model becomes model.safetensors."""
    config = context.world.config
    assert context.tally.tested is not None
    about = {
        "method": config.method.name,
        "dataset": config.data.name,
        "round": record["round"],
        "metric": context.metric,
        **{name: record[name] for name in OF_A_MODEL if name in record},  # type: ignore[literal-required]
        "positive": context.place.facts.class_names[context.positive],
    }
    save_model(context.directory.model, context.world, context.place.network, context.tally.tested, about)


def _choose(context: RunContext, model: Snapshot, baselines: Baselines, guard: Guard) -> tuple[Snapshot, str]:
    """The better of the final and the guard's best model, if it beats labels alone; else the labels-only model."""
    score = context.server.grade(model, "validation")
    if getattr(score, context.metric) < guard.value:
        kept = Snapshot(guard.weights, guard.stats or context.server.statistics(guard.weights))
        again = context.server.grade(kept, "validation")
        if getattr(again, context.metric) >= getattr(score, context.metric):
            model, score = kept, again
    baseline = baselines["train"].validation
    assert baseline is not None
    if beats(score, baseline, context.metric):
        return model, OF_CLIENTS
    return baselines["all"].model, OF_LABELS


def summary(
    context: RunContext,
    history: Sequence[RoundRecord],
    final: Measured,
    baselines: Baselines,
    final_seconds: float,
) -> Summary:
    """What result.json says; the final model competes for the best as one more round, if labels held out judge both."""
    config, metric = context.world.config, context.metric
    records: list[Measured] = [*history, final]
    by_test = max(records, key=lambda record: record.get("accuracy", -math.inf))
    judged = [record for record in reversed(records) if f"validation_{metric}" in record]  # the latest of those alike
    best = max(judged or records, key=lambda record: deciding(record, metric))
    seconds = [record["seconds"]["total"] for record in history]
    found: JSON = {
        "method": config.method.name,
        "dataset": config.data.name,
        "seed": config.run.seed,
        "rounds": len(history),
        "metric": metric,
        **{name: final[name] for name in OF_A_MODEL if name in final},  # type: ignore[literal-required]
        **{f"best_{name}": best[name] for name in OF_A_MODEL if name in best},  # type: ignore[literal-required]
        "best_round": _round_or_final(best, history),
        "best_test_accuracy": by_test["accuracy"],
        "best_test_round": _round_or_final(by_test, history),
        **{f"labels_only_{name}": None for name in OF_A_MODEL if name in final},
        **scores_alone(context, baselines),
        "seconds": round(sum(seconds) + final_seconds, 3),
        "seconds_per_round": round(sum(seconds) / len(seconds), 4) if seconds else None,
        "bytes_up": sum(record["bytes_up"] for record in records),
        "bytes_down": sum(record["bytes_down"] for record in records),
    }
    return cast(Summary, found)


def _round_or_final(record: Measured, history: Sequence[RoundRecord]) -> int | str:
    """Return a round's number; the final model, after the closing fine-tune, is of no round."""
    return record["round"] if record["round"] <= len(history) else "final"


def deciding(record: Measured, metric: Metric) -> float:
    """What a model is chosen by: the metric on labels held out, or where there are none on the test pictures."""
    found = number(record.get(f"validation_{metric}"))
    tested = shown(record, metric) if found is None else found
    return -math.inf if tested is None else tested  # one that was not tested is not chosen

"""The model card, RUN/model.md: what a person should know who gets the model and nothing else."""

from __future__ import annotations

import time
from typing import Any

import torch

from semifl.configuration.config import spec_of
from semifl.durable import replace_text
from semifl.records.metrics import OF_A_MODEL, WORDS, of_the_kept
from semifl.records.record import Summary, number
from semifl.records.verdict import baseline, faults, is_of_labels, model_of, verdict, with_interval
from semifl.running.context import RunContext
from semifl.running.recording import environment


def write_model_card(context: RunContext, result: Summary) -> None:
    replace_text(context.directory.path / "model.md", model_card(context, result, time.strftime("%Y-%m-%d")))


def model_card(context: RunContext, result: Summary, date: str) -> str:
    world, facts = context.world, context.world.data.facts
    where = environment(world.config.table())
    lines = [
        f"# A classifier of {facts.classes} classes",
        "",
        f"Trained with semifl on {date}; the model is `model.safetensors` beside this file.",
        "",
        *_verdict(result),
        *_table("What it takes and gives", _interface(facts)),
        *_table("What it was trained on", _data(context, result)),
        *_table("How", _how(context, result)),
        *_table("How well it does", _accuracy(context, result)),
        "## What to keep in mind",
        "",
        f"- Numbers are measured on {len(world.data.test_labels)} test pictures of the same collection; in brackets "
        "are 95 % intervals, for the chance in choosing them. Pictures from elsewhere may be harder.",
        "- A picture of something that is none of the classes is given to one of them all the same.",
        *_caution(context, result),
        "",
        *_table("Made with", {name: where[name] for name in ("semifl", "python", "torch", "system")}),
    ]
    return "\n".join(lines)


def _verdict(result: Summary) -> list[str]:
    """Return what is wrong with the model, each with its remedy, and whether the clients helped."""
    found = faults(result)
    lines = [f"**{fault.sentence}** {fault.remedy}" for fault in found]
    lines += [f"**{sentence}**" for sentence in verdict(result)[len(found) :]]
    return [line for each in lines for line in (each, "")]


def _caution(context: RunContext, result: Summary) -> list[str]:
    if "client_labels" in context.method.needs or is_of_labels(result):
        return []
    return ["- Most of its training labels were made by itself and were not checked by anybody."]


def _interface(facts: Any) -> dict[str, Any]:
    colour = {1: "grey", 3: "colour (red, green, blue)"}.get(facts.channels, f"{facts.channels} channels")
    size = f"{facts.size} × {facts.size} pixels"
    return {
        "pictures": f"{size}, {colour}: turned upright, shorter side resized, middle cut out",
        "normalised by": f"mean {_numbers(facts.mean)}, standard deviation {_numbers(facts.std)}, of values in [0, 1]",
        "classes": ", ".join(facts.class_names),
        "use it": "`semifl predict RUN pictures…`, or `semifl export RUN --to onnx`",
    }


def _data(context: RunContext, result: Summary) -> dict[str, Any]:
    world, counts = context.world, context.client_pictures
    division, alone = world.division, is_of_labels(result)
    learned = torch.cat([division.server, division.validation]) if alone else division.server
    labels = world.data.labels[learned].bincount(minlength=world.data.facts.classes).tolist()
    theirs = f"{sum(counts)} at {len(counts)} clients"
    held_out = str(len(division.validation))
    return {
        "data": f"`{world.config.data.name}`",
        "labeled pictures": f"{sum(labels)} at the server; by class {', '.join(map(str, labels))}",
        "the clients' pictures": f"none; the model that learned from {theirs} was no better" if alone else theirs,
        "held out to choose a model": f"{held_out}, from which this one then learned, too" if alone else held_out,
    }


def _how(context: RunContext, result: Summary) -> dict[str, Any]:
    config = context.world.config
    return {
        "method": f"`{config.method.name}`",
        "model": f"`{config.model.name}`, {sum(tensor.numel() for tensor in context.first_weights.values()):,} weights",
        **_backbone(context),
        "rounds": str(result["rounds"]),
        "seed": str(config.run.seed),
        "every setting": "`config.toml` of the run",
    }


def _backbone(context: RunContext) -> dict[str, Any]:
    """What a model on somebody else's backbone owes them, and what identifies the part that was not trained here."""
    hash = context.world.data.facts.backbone
    if not hash:
        return {}
    spec = spec_of(context.world.config.model)
    return {
        "backbone": f"`{spec.portable()['source']}`, licence {spec.backbone.licence}; trained here: {spec.train}",
        "the backbone's hash": f"`{hash}`",
    }


def _accuracy(context: RunContext, result: Summary) -> dict[str, Any]:
    """Of the model that was kept: with labels held out that is the best on them, not the last one."""
    held_out = context.world.config.split.validation and not is_of_labels(result)
    numbers: dict[str, Any] = {**result}
    prefix, alone = of_the_kept(result), baseline(result)
    facts: dict[str, Any] = {}
    if prefix:
        facts["the model"] = f"{model_of(result, prefix)}, the best on held-out labels by {WORDS[context.metric]}"
    for name in OF_A_MODEL:
        if number(numbers.get(f"{prefix}{name}")) is not None:
            key = f"{alone}{name}"
            compared = "" if number(numbers.get(key)) is None else f"; labels alone {with_interval(result, key)}"
            facts[WORDS[name]] = f"{with_interval(result, f'{prefix}{name}')}{compared}"
    if "sensitivity" in numbers:
        positive = context.place.facts.class_names[context.positive]
        where = "chosen on held-out labels" if held_out else "an even one, as no labels were left to choose it by"
        facts["positive"] = f"`{positive}`, said from a probability of the decision threshold on, {where}"
    return facts


def _table(title: str, facts: dict[str, Any]) -> list[str]:
    rows = [f"| {name} | {str(value).replace('|', chr(92) + '|')} |" for name, value in facts.items()]
    return [f"## {title}", "", "| | |", "|---|---|", *rows, ""]


def _numbers(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.4f}" for value in values)

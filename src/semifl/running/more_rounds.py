"""Another number of rounds for a run that has begun: what may be asked for, and what is forgotten then."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from semifl.configuration.config import Config
from semifl.errors import UserError
from semifl.records.directory import RunDirectory
from semifl.records.record import RoundRecord
from semifl.regular import remove_folder
from semifl.running.checkpoint import Checkpoints
from semifl.running.context import RunContext, Silent
from semifl.running.finish import deciding
from semifl.running.labels_only import LABELS_ONLY
from semifl.trained.export import FOREIGN_ENDINGS
from semifl.words import counted

STOPPED = "stopped early"  # the event; by a rule of [stop] or by whoever watches
CHANGED = "rounds changed"  # the event


class Schedule(NamedTuple):
    """The number of rounds that a run's first rounds went by, and how many of them did."""

    rounds: int
    until: int


def should_stop(config: Config, history: Sequence[RoundRecord]) -> str:
    """The key of [stop] that ends a run after these rounds, or nothing."""
    stop = config.stop
    if stop.minutes and sum(record["seconds"]["total"] for record in history) >= 60 * stop.minutes:
        return "stop.minutes"
    if not stop.patience or not history:
        return ""
    best = max(history, key=lambda record: deciding(record, config.run.metric))
    return "stop.patience" if len(history) - history.index(best) > stop.patience else ""


def with_rounds(config: Config, directory: RunDirectory, rounds: int) -> Config:
    """The same run with another number of rounds, if it can have that; nothing is written."""
    done = max(Checkpoints(directory.checkpoints).rounds(), default=0)
    if rounds > done and (key := should_stop(config, directory.rounds_until(done))):
        raise UserError(
            f"{directory.path} was ended by {key} after {done} rounds, which would end it again at once: "
            f"raise {key} in its config.toml first"
        )
    return replace(config, run=replace(config.run, rounds=rounds))


def refuse_fewer(config: Config, directory: RunDirectory) -> None:
    """Rounds that are done cannot be taken back, whether a person asks for it or has changed config.toml."""
    done = max(Checkpoints(directory.checkpoints).rounds(), default=0)
    if config.run.rounds < done:
        raise UserError(f"{directory.path} has {done} rounds already, so it cannot be resumed to {config.run.rounds}")


def can_go_on(config: Config, directory: RunDirectory) -> bool:
    """Whether a finished run was ended by a rule of [stop] that a person has raised since."""
    stopped = [event for event in directory.lines("events.jsonl") if event.get("event") == STOPPED]
    if not stopped or "by" not in stopped[-1]:
        return False
    done = max(Checkpoints(directory.checkpoints).rounds(), default=0)
    return 0 < done < config.run.rounds and not should_stop(config, directory.rounds_until(done))


def settle_rounds(context: RunContext, done: int) -> None:
    """Write down that the run goes on, to another number of rounds perhaps, once nothing can refuse it any more."""
    directory, config, before = context.directory, context.world.config, _rounds_before(context)
    directory.forget_summary()  # first: a result must never stand beside a configuration it does not belong to
    for old in directory.set_aside((f"model{ending}" for ending in FOREIGN_ENDINGS), done):
        context.observer.warn(
            f"{old} is the export of the model after {counted(done, 'round')}: export again when the run has ended"
        )
    if before == config.run.rounds:
        return
    for which, name in LABELS_ONLY.items():  # their learning rates were those of another number of rounds
        if not (done and which.endswith("start")):  # but what the rounds began with stays what it was
            remove_folder(directory.checkpoints / name)
    directory.write_config(config.table())
    directory.add_event(CHANGED, rounds=config.run.rounds, before=before, after=done)


def _rounds_before(context: RunContext) -> Any:
    """The number that the run's files were made for: a person may have changed the one in config.toml since."""
    of_labels = Checkpoints(context.directory.checkpoints / LABELS_ONLY["all"])
    saved = of_labels.load([type(context.method.start(context.first_weights))], Silent().warn)  # told when it is used
    noted = json.loads(saved.bound.config) if saved else {}
    return noted.get("rounds", context.directory.config().get("rounds"))


def first_schedule(directory: RunDirectory, config: Config) -> Schedule:
    """By which number of rounds the first ones went, if it has been changed since."""
    for event in directory.lines("events.jsonl"):
        if event.get("event") == CHANGED and event["after"]:
            if "before" not in event:
                raise UserError(
                    f"{directory.path} was given another number of rounds by a version that did not note the one before"
                )
            return Schedule(event["before"], event["after"])
    return Schedule(config.run.rounds, config.run.rounds)

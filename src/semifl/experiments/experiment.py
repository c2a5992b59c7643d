"""The loop: rounds of a method on a world, recorded and checkpointed, from the start or from where a run was left."""

from __future__ import annotations

import math
import shutil
import time
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from semifl.errors import RunStopped, UserError
from semifl.experiments import toml
from semifl.experiments.binding import Bound, adopted, bound_to, refuse_another_config, refuse_other_files
from semifl.experiments.build import World, build_world
from semifl.experiments.checkpoint import Checkpoints
from semifl.experiments.config import Config, read
from semifl.experiments.guard import Guard, first_guard, judge, what_it_can_tell
from semifl.experiments.health import MESSAGES
from semifl.experiments.labels_only import train_labels_only
from semifl.experiments.outcome import Rivals, best_on_validation, finish, keep_model
from semifl.experiments.records import Record, RunDirectory, environment, round_record
from semifl.experiments.stage import Elsewhere, Observer, Silent, Stage, check_outputs, open_stage
from semifl.experiments.toml import Table
from semifl.learning.precision import choose
from semifl.learning.weights import digest, distance, is_finite

LABELS_ONLY = {"all": "labels_only", "train": "labels_only_train"}  # where their checkpoints lie


class Progress(NamedTuple):
    """All that changes between rounds."""

    state: Any
    guard: Guard | None


class Standing(NamedTuple):
    """Where a run stands after its last complete round."""

    done: int
    progress: Progress
    history: list[Record]
    bound: Bound


def start(
    config: Config,
    out: Path,
    workers: int = 1,
    device: str = "cpu",
    observer: Observer | None = None,
    elsewhere: Elsewhere | None = None,
) -> Record:
    """Run an experiment into a new directory; clients may live elsewhere."""
    world = build_world(_with_precision(config, device, observer or Silent()))
    directory = RunDirectory(out)
    check_outputs(world.place(None, device))  # before anything is written: a mistake must leave no run behind
    directory.create(world.config)
    with directory.locked():
        return _run(world, directory, workers, device, observer or Silent(), elsewhere)


def start_or_resume(
    config: Config,
    out: Path,
    workers: int = 1,
    device: str = "cpu",
    observer: Observer | None = None,
    elsewhere: Elsewhere | None = None,
) -> Record:
    """Run an experiment into a directory; if it holds a run already, go on with it, provided that it is the same."""
    directory = RunDirectory(out)
    if not (out / "config.toml").exists():
        return start(config, out, workers, device, observer, elsewhere)
    world = build_world(_with_precision(config, device, observer or Silent()))
    if changed := changes(directory, world.config):
        raise UserError(f"{out} holds another run, so this one needs a directory of its own: {changed[0]}")
    with directory.locked():
        finished = directory.whole_result()
        return finished or _go_on(world, directory, workers, device, observer, elsewhere)


def _with_precision(config: Config, device: str, observer: Observer) -> Config:
    """A run keeps the precision it began with, so "auto" is settled before anything is written."""
    precision, note = choose(config.run.precision, device)
    if note:
        observer.warn(note)
    return replace(config, run=replace(config.run, precision=precision))


def resume(
    out: Path, workers: int = 1, device: str = "cpu", observer: Observer | None = None, rounds: int | None = None
) -> Record:
    """Continue a run from its directory; `rounds` gives a run, finished or not, another number of rounds."""
    directory = RunDirectory(out)
    config = directory.config()
    with directory.locked():
        done = max(Checkpoints(directory.checkpoints).rounds(), default=0)
        finished = directory.whole_result()
        if rounds is not None and rounds != config.run.rounds:
            config = _change_rounds(directory, config, done, rounds)
        elif finished:
            return finished
        return _go_on(build_world(config), directory, workers, device, observer)


def _go_on(
    world: World,
    directory: RunDirectory,
    workers: int,
    device: str,
    observer: Observer | None,
    elsewhere: Elsewhere | None = None,
) -> Record:
    done = max(Checkpoints(directory.checkpoints).rounds(), default=0)
    if not done and len(directory.rounds()) > 1:  # one line may be that of a round whose checkpoint never came
        raise UserError(
            f"{directory.path} has lost its checkpoints, so its {len(directory.rounds())} rounds cannot be continued"
        )
    directory.add_event("resumed", after=done, environment=environment())
    return _run(world, directory, workers, device, observer or Silent(), elsewhere)


def changes(directory: RunDirectory, config: Config) -> list[str]:
    """What a configuration would change in the run that a directory holds, in words."""
    return differences(read(directory.path / "config.toml"), tomllib.loads(toml.dumps(config.table())))


def differences(before: Table, after: Table, where: str = "") -> list[str]:
    """Which values of a configuration changed, in words."""
    found = []
    for key in [*before, *(key for key in after if key not in before)]:
        old, new = before.get(key), after.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += differences(old, new, f"{where}{key}.")
        elif old != new:
            found.append(f"{where}{key} was {old!r} and is now {new!r}")
    return found


def _change_rounds(directory: RunDirectory, config: Config, done: int, rounds: int) -> Config:
    if rounds < done:
        raise UserError(f"{directory.path} has {done} rounds already, so it cannot be resumed to {rounds}")
    config = replace(config, run=replace(config.run, rounds=rounds))
    for name in LABELS_ONLY.values():  # their learning rates were those of another number of rounds
        shutil.rmtree(directory.checkpoints / name, ignore_errors=True)
    directory.forget_result()  # first: a result must never stand beside a configuration it does not belong to
    directory.write_config(config)
    directory.add_event("rounds changed", rounds=rounds, after=done)
    return config


def _run(
    world: World, directory: RunDirectory, workers: int, device: str, observer: Observer, elsewhere: Elsewhere | None
) -> Record:
    with open_stage(world, directory, workers, device, observer, elsewhere) as stage:
        standing = _load(stage)  # before anything is trained or removed: what does not belong here is refused at once
        rivals = _rivals(stage)
        directory.keep_rounds(standing.history)
        stage.memory.forget_after(standing.done)
        observer.begin(world, standing.done + 1)
        last, progress = _play(stage, standing)
        return finish(stage, last, progress.state, rivals, progress.guard)


def _rivals(stage: Stage) -> Rivals:
    """The labels-only models that the run is compared with."""
    run, division = stage.world.config.run, stage.world.division
    rivals: Rivals = {}
    # A method that lives on the clients' labels does not learn without them, so it has no rival to beat.
    if (run.labels_only and "client_labels" not in stage.method.needs) or run.guard:
        everything = torch.cat([division.server, division.validation]).sort().values
        rivals["all"] = train_labels_only(stage, everything, LABELS_ONLY["all"])
        stage.observer.labels_only(rivals["all"].test.accuracy)
    if run.guard:
        rivals["train"] = train_labels_only(stage, division.server, LABELS_ONLY["train"])
        stage.observer.warn(what_it_can_tell(len(division.validation)))
    return rivals


def _load(stage: Stage) -> Standing:
    """The last round that is done and what to go on from, all of it as this run left it."""
    first = stage.method.start(stage.first_weights)
    guard = first_guard(stage.first_weights) if stage.world.config.run.guard else None
    named = [type(first), Guard, Progress]
    directory, config, memory = stage.directory, stage.world.config, stage.memory
    now = bound_to(config, **stage.world.deciding())
    saved = Checkpoints(directory.checkpoints).load(named, stage.observer.warn)
    if not saved:
        return Standing(0, Progress(first, guard), [], now)
    if saved.bound:
        refuse_another_config(saved.bound, now, saved.path, directory.path / "config.toml")
    history = directory.rounds_until(saved.round)
    if saved.bound:
        refuse_other_files(saved.bound, directory, history, memory)
    return Standing(saved.round, saved.state, history, saved.bound or adopted(config, history, memory))


def _play(stage: Stage, standing: Standing) -> tuple[int, Progress]:
    """The rounds that are still to come; returns the last one and what is left after it."""
    checkpoints = Checkpoints(stage.directory.checkpoints)
    done, progress, history, bound = standing
    for index in range(done + 1, stage.world.config.run.rounds + 1):
        if _should_stop(stage.world.config, history):
            stage.directory.add_event("stopped early", after=index - 1)
            return index - 1, progress
        record, progress = _one_round(stage, index, progress, history)
        better = best_on_validation(record, history)
        if better:
            keep_model(stage, record)
        history.append(record)
        stage.directory.add_round(record)
        memory = stage.memory.note(bound.memory, record["cohort"], index)
        bound = bound.after(record, memory, stage.directory.model if better else None)
        checkpoints.save(index, progress, bound)
        try:
            stage.observer.round(record, max(each["accuracy"] for each in history))
        except StopIteration:
            stage.directory.add_event("stopped early", after=index)
            return index, progress
    return stage.world.config.run.rounds, progress


def _one_round(stage: Stage, index: int, progress: Progress, history: list[Record]) -> tuple[Record, Progress]:
    began = time.perf_counter()
    stage.tally.reset()
    failures_left = stage.world.config.run.max_failures - sum(len(each["failed"]) for each in history)
    t = stage.round_at(index, index)
    before = stage.method.weights(progress.state)
    state, model = stage.method.round(t, progress.state, stage.server.at(t), stage.clients(failures_left))
    stage.test(model)
    after = stage.method.weights(state)
    record = round_record(t, stage.tally, distance(after, before))
    state = _heed(stage, record, history, progress.state, state)
    guard = progress.guard
    if guard and stage.tally.tested and stage.tally.validation:
        state, guard = judge(guard, stage.tally.tested, stage.tally.validation, state, stage.method)
        record["fallbacks"] = guard.fallbacks
    record["digest"] = digest(stage.method.weights(state))
    record["seconds"]["total"] = round(time.perf_counter() - began, 4)
    return record, Progress(state, guard)


def _heed(stage: Stage, record: Record, history: list[Record], before: Any, after: Any) -> Any:
    """Write down what looks wrong, tell whoever watches when it is new, and do what the policy says."""
    health = stage.world.config.health
    finite = is_finite(stage.method.weights(after)) and all(map(math.isfinite, stage.tally.losses()))
    record["alerts"] = health.alerts(record, history, finite)
    for reply in stage.tally.replies:
        if reply.outcome in ("failed", "rejected"):
            stage.directory.add_event(reply.outcome, round=record["round"], client=reply.client, reason=reply.reason)
    known = history[-1]["alerts"] if history else []
    for alert in record["alerts"]:
        if alert not in known:
            stage.observer.warn(f"round {record['round']}: {MESSAGES[alert]}")
    policy = health.policy(record["alerts"])
    if policy == "stop":
        raise RunStopped(f"round {record['round']}: {MESSAGES[record['alerts'][0]]} (health policy: stop)")
    record["skipped"] = policy == "skip"
    return before if policy == "skip" else after


def _should_stop(config: Config, history: list[Record]) -> bool:
    stop = config.stop
    if stop.minutes and sum(record["seconds"]["total"] for record in history) >= 60 * stop.minutes:
        return True
    if not stop.patience or not history:
        return False
    best = max(history, key=lambda record: record["validation_accuracy"])
    return len(history) - history.index(best) > stop.patience

"""The loop: rounds of a method on a world, recorded and checkpointed, from the start or from where a run was left."""

from __future__ import annotations

import math
import time
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

from semifl import toml
from semifl.configuration.build import World, build_world, what_was_loaded
from semifl.configuration.code import code_in, remember_own_run
from semifl.configuration.config import Config, decode, of_run, read
from semifl.configuration.health import ACTIONS, MESSAGES, Known
from semifl.data.duplicates import duplicates
from semifl.errors import RunStopped, UserError, full_traceback, has_traceback
from semifl.federation.cluster.address import Cluster
from semifl.federation.pools import check_reachable
from semifl.learning.precision import choose
from semifl.learning.weights import Weights, digest, distance, is_finite
from semifl.records.directory import RunDirectory, code_versions_of, versions_that_differ
from semifl.records.metrics import best_shown
from semifl.records.record import Measured, RoundRecord, Summary, is_best
from semifl.records.verdict import labels_only
from semifl.running.binding import Bound, bound_to, refuse_another_config, refuse_other_files, restore_best
from semifl.running.checkpoint import Checkpoints
from semifl.running.context import (
    Elsewhere,
    Observer,
    RunContext,
    Silent,
    check_outputs,
    check_training,
    open_context,
    with_threads,
)
from semifl.running.fallback import Sound, remembered
from semifl.running.finish import finish, keep_model, write_world
from semifl.running.guard import Guard, first_guard, judge, what_it_can_tell
from semifl.running.judgment import judge_alone
from semifl.running.labels_only import (
    LABELS_ONLY,
    Baselines,
    models_to_train,
    train_alone,
    train_labels_only,
)
from semifl.running.more_rounds import STOPPED, can_go_on, refuse_fewer, settle_rounds, should_stop, with_rounds
from semifl.running.recording import environment, measure
from semifl.toml import Table


class LoopState(NamedTuple):
    """All that changes between rounds."""

    state: Any
    guard: Guard | None
    sound: Sound | None = None  # only where a health policy may fall back to it


class Standing(NamedTuple):
    """Where a run stands after its last complete round."""

    done: int
    progress: LoopState
    history: list[RoundRecord]
    bound: Bound


def start(
    experiment: Config | World,
    out: Path,
    workers: int | Cluster = 1,
    device: str = "cpu",
    observer: Observer | None = None,
    elsewhere: Elsewhere | None = None,
) -> Summary:
    """Run an experiment into a new directory; clients may live elsewhere."""
    check_reachable(workers)
    world = _world_of(experiment, device, observer or Silent())
    directory = RunDirectory(out)
    place = world.place(None, device)
    check_outputs(place)  # before anything is written: a mistake must leave no run behind
    check_training(place, world.config)
    world = replace(world, config=with_threads(world.config, place))
    remember_own_run(world.config.table())  # first: a run that is killed from here on must go on by its directory
    directory.create(world.config.table(), environment(world.config.table()))
    if world.config.warm_start.partial and (loaded := what_was_loaded(world)):
        (observer or Silent()).warn(loaded)
        directory.add_event("weights", what=loaded)
    for sentence in duplicates(world.data):
        (observer or Silent()).warn(sentence)
        directory.add_event("duplicates", what=sentence)
    with directory.locked():
        return _run(world, directory, workers, device, observer or Silent(), elsewhere)


def start_or_resume(
    experiment: Config | World,
    out: Path,
    workers: int | Cluster = 1,
    device: str = "cpu",
    observer: Observer | None = None,
    elsewhere: Elsewhere | None = None,
) -> Summary:
    """Run an experiment into a directory; if it holds a run already, go on with it, provided that it is the same."""
    directory = RunDirectory(out)
    if not (out / "config.toml").exists():
        return start(experiment, out, workers, device, observer, elsewhere)
    world = _world_of(experiment, device, observer or Silent())
    world = replace(world, config=as_begun(world.config, directory))
    if changed := changes(directory, world.config):
        raise UserError(f"{out} holds another run, so this one needs a directory of its own: {changed[0]}")
    remember_own_run(world.config.table())
    with directory.locked():
        finished = directory.summary()
        return finished or _go_on(world, directory, workers, device, observer, elsewhere)


def _world_of(experiment: Config | World, device: str, observer: Observer) -> World:
    """Return the world of a configuration; a hub has built its own already."""
    if isinstance(experiment, World):
        return replace(experiment, config=_with_precision(experiment.config, device, observer))
    return build_world(_with_precision(experiment, device, observer))


def as_begun(config: Config, directory: RunDirectory) -> Config:
    """Return the configuration with the number of threads that a run has begun with, unless it names one itself."""
    begun = read(directory.path / "config.toml").get("threads")
    if config.run.threads or not isinstance(begun, int):
        return config
    return replace(config, run=replace(config.run, threads=begun))


def _with_precision(config: Config, device: str, observer: Observer) -> Config:
    """A run keeps the precision it began with, so "auto" is settled before anything is written."""
    precision, note = choose(config.run.precision, device)
    if note:
        observer.warn(note)
    return replace(config, run=replace(config.run, precision=precision))


def resume(
    out: Path,
    workers: int | Cluster = 1,
    device: str = "cpu",
    observer: Observer | None = None,
    rounds: int | None = None,
) -> Summary:
    """Continue a run from its directory; `rounds` gives a run, finished or not, another number of rounds."""
    directory = RunDirectory(out)
    config = of_run(directory)
    with directory.locked():
        finished = directory.summary()
        is_short = finished is not None and finished["rounds"] < (rounds or 0)  # somebody who watched had ended it
        if rounds is not None and (rounds != config.run.rounds or is_short):
            config = with_rounds(config, directory, rounds)
        elif finished and not can_go_on(config, directory):
            return finished
        refuse_fewer(config, directory)
        return _go_on(build_world(config), directory, workers, device, observer)


def _go_on(
    world: World,
    directory: RunDirectory,
    workers: int | Cluster,
    device: str,
    observer: Observer | None,
    elsewhere: Elsewhere | None = None,
) -> Summary:
    done = max(Checkpoints(directory.checkpoints).rounds(), default=0)
    if not done and len(directory.rounds()) > 1:  # one line may be that of a round whose checkpoint never came
        raise UserError(
            f"{directory.path} has lost its checkpoints, so its {len(directory.rounds())} rounds cannot be continued"
        )
    check_training(world.place(None, device), world.config)
    begun, now = directory.code_versions(), environment(world.config.table())
    directory.add_event("resumed", after=done, environment=now)
    observer = observer or Silent()
    if begun and (changed := versions_that_differ([begun[-1], code_versions_of(now)])):
        names = " and ".join(changed)
        observer.warn(f"the code of {names} has changed since round {done}: the rounds to come use it as it is now")
    return _run(world, directory, workers, device, observer, elsewhere)


def changes(directory: RunDirectory, config: Config) -> list[str]:
    """What a configuration would change in the run that a directory holds, in words."""
    then = read(directory.path / "config.toml")
    if code_in(then).items() <= code_in(config.table()).items():  # what else a directory names is not imported for it
        with suppress(UserError):  # a thing of Python's cannot be found again by its name
            then = decode(then).table()  # keys that are new since then have their defaults
    before, after = (tomllib.loads(toml.dumps(each)) for each in (then, config.table()))
    return differences(before, after)


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


def _run(
    world: World,
    directory: RunDirectory,
    workers: int | Cluster,
    device: str,
    observer: Observer,
    elsewhere: Elsewhere | None,
) -> Summary:
    with (
        _failures_logged(directory),
        open_context(world, directory, workers, device, observer, elsewhere) as context,
    ):
        first = context.first_weights
        standing = _load(context, first)  # before anything is trained or removed: refuse what does not belong here
        settle_rounds(context, standing.done)
        restore_best(standing.bound, directory)
        write_world(context)
        observer.begin(world, standing.done + 1)
        if world.config.run.start == "labels":
            first = _first_learned(context, context.method, "start", standing.done)
            standing = standing if standing.done else _load(context, first)
        baselines = _baselines(context, first, standing.done)
        directory.write_rounds(standing.history)
        context.memory.forget_after(standing.done)
        last, progress = _remaining_rounds(context, standing)
        return finish(context, last, progress.state, baselines, progress.guard)


@contextmanager
def _failures_logged(directory: RunDirectory) -> Iterator[None]:
    """Keep the traceback of what ends a run, unless one sentence tells all there is to know."""
    try:
        yield
    except Exception as error:
        if has_traceback(error):
            with suppress(OSError):  # a full disk must not hide why the run ended
                directory.add_failure("the run ended", full_traceback(error))
        raise


def _first_learned(context: RunContext, method: Any, which: str, done: int) -> Weights:
    """What the labels alone make of the model. Rounds begin there, and so does the labels-only model beside them."""
    began = time.perf_counter()
    server, starts = context.server_with(context.world.division.server).alone(), context.directory.checkpoints
    # Of rounds that are done it was the beginning, however many the run has been given since.
    trained = max(Checkpoints(starts / LABELS_ONLY["start"]).rounds(), default=0) if done else 0
    there = context.scheduled_for(trained) if trained else context
    weights = train_alone(there, method, server, LABELS_ONLY[which], context.first_weights, "start").weights
    if which == "start":
        context.directory.add_event("started from labels", seconds=round(time.perf_counter() - began, 4))
    return weights


def _baselines(context: RunContext, first: Weights, done: int) -> Baselines:
    """The labels-only models that the run is compared with, which begin where its rounds do."""
    run, division, method = context.world.config.run, context.world.division, context.method
    baselines: Baselines = {}
    if "all" in models_to_train(context):
        everything = torch.cat([division.server, division.validation]).sort().values
        if plain := method.plain_server():  # which has its own way from the start on
            start = _first_learned(context, plain, "plain_start", done) if run.start == "labels" else first
            baselines["plain"] = train_labels_only(context, plain, everything, LABELS_ONLY["plain"], start)
        baselines["all"] = train_labels_only(context, method, everything, LABELS_ONLY["all"], first)
        alone = judge_alone(context, baselines)
        context.directory.write_facts("labels_only.json", alone)
        context.observer.labels_only(labels_only(alone, run.metric) or 0.0)
    if run.guard:
        baselines["train"] = train_labels_only(context, method, division.server, LABELS_ONLY["train"], first)
        assert baselines["train"].validation is not None
        context.observer.warn(what_it_can_tell(baselines["train"].validation, run.metric))
    return baselines


def _load(context: RunContext, first: Weights) -> Standing:
    """The last round that is done and what to go on from, all of it as this run left it."""
    state = context.method.start(first)
    guard = first_guard(first) if context.world.config.run.guard else None
    named = [type(state), Guard, LoopState, Sound]
    directory, config, memory = context.directory, context.world.config, context.memory
    now = bound_to(config, **context.world.deciding())
    saved = Checkpoints(directory.checkpoints).load(named, context.observer.warn)
    if not saved:
        return Standing(0, LoopState(state, guard), [], now)
    refuse_another_config(saved.bound, now, saved.path, directory.path / "config.toml")
    history = directory.rounds_until(saved.round)
    refuse_other_files(saved.bound, directory, history, memory)
    return Standing(saved.round, saved.state, history, saved.bound)


def _remaining_rounds(context: RunContext, standing: Standing) -> tuple[int, LoopState]:
    """The rounds that are still to come; returns the last one and what is left after it."""
    checkpoints = Checkpoints(context.directory.checkpoints)
    done, progress, history, bound = standing
    for index in range(done + 1, context.world.config.run.rounds + 1):
        if rule := should_stop(context.world.config, history):
            context.directory.add_event(STOPPED, after=index - 1, by=rule)
            return index - 1, progress
        record, progress = _one_round(context, index, progress, history)
        better = is_best(record.get(f"validation_{context.metric}"), history, context.metric)
        if better:
            keep_model(context, record)
        history.append(record)
        context.directory.add_round(record)
        if _is_undone(history):  # what clients remember of an undone round would bring it back
            context.memory.forget_after(index - 1)
        memory = context.memory.note(bound.memory, record["cohort"], index)
        bound = bound.after(record, memory, context.directory.model if better else None)
        checkpoints.save(index, progress, bound)
        try:
            context.observer.round(record, best_shown(history, context.metric))
        except StopIteration:
            context.directory.add_event(STOPPED, after=index)
            return index, progress
    return context.world.config.run.rounds, progress


def _is_undone(history: Sequence[RoundRecord]) -> bool:
    """Whether a health policy or the guard goes on from an earlier model than that of the last of these rounds."""
    last, before = history[-1], history[-2].get("fallbacks", 0) if len(history) > 1 else 0
    return last["skipped"] or "back_to" in last or last.get("fallbacks", 0) > before


def _one_round(
    context: RunContext, index: int, progress: LoopState, history: list[RoundRecord]
) -> tuple[RoundRecord, LoopState]:
    began = time.perf_counter()
    context.tally.reset()
    failures_left = context.world.config.run.max_failures - sum(len(each["failed"]) for each in history)
    t = context.round_at(index, index)
    before, guard = context.method.weights(progress.state), progress.guard
    state, model = context.method.round(t, progress.state, context.server.at(t), context.clients(failures_left))
    context.test(model, context.is_due(index), history)
    measured = measure(t, context.tally, distance(context.method.weights(state), before), context.positive)
    alerts = _alerts(context, measured, history, state)
    health, sound = context.world.config.health, progress.sound
    policy = health.policy(alerts)
    back = sound if policy == "fallback" else None
    skipped = policy == "skip" or (policy == "fallback" and back is None)  # nothing sound has been seen yet
    if health.may_fall_back:
        sound = remembered(sound, model, measured, alerts, context.metric)
    state = context.method.start(back.weights) if back else progress.state if skipped else state
    if guard and context.tally.validation:
        state, guard = judge(guard, model, context.tally.validation, context.metric, state, context.method)
    record: RoundRecord = {
        **measured,
        "alerts": alerts,
        "skipped": skipped,
        **({"back_to": back.round} if back else {}),  # type: ignore[typeddict-item]
        **({"fallbacks": guard.fallbacks} if guard else {}),  # type: ignore[typeddict-item]
        "digest": digest(context.method.weights(state)),
        "seconds": {name: round(each, 4) for name, each in context.tally.seconds.items()}
        | {"total": round(time.perf_counter() - began, 4)},
    }
    return record, LoopState(state, guard, sound)


def _alerts(context: RunContext, measured: Measured, history: list[RoundRecord], state: Any) -> list[str]:
    """What looks wrong; whoever watches is told when it is new, and a policy may end the run."""
    health, index = context.world.config.health, measured["round"]
    finite = is_finite(context.method.weights(state)) and all(map(math.isfinite, context.tally.losses()))
    alerts = health.alerts(measured, history, finite, _known(context))
    for reply in context.tally.replies:
        if reply.outcome in ("failed", "rejected"):
            context.directory.add_event(reply.outcome, round=index, client=reply.client, reason=reply.reason)
    known = history[-1]["alerts"] if history else []
    for alert in alerts:
        if alert not in known:
            context.observer.warn(f"round {index}: {MESSAGES[alert]}; {ACTIONS[health.policy_of(alert)]}")
    if health.policy(alerts) == "stop":
        raise RunStopped(f"round {index}: {MESSAGES[alerts[0]]} (health policy: stop)")
    return alerts


def _known(context: RunContext) -> Known:
    labels = context.server.labels
    prior = torch.bincount(labels, minlength=context.server.facts.classes).double() / len(labels)
    return Known(context.metric, tuple(prior.tolist()), len(context.world.division.validation))

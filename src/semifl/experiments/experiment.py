"""The loop: rounds of a method on a world, recorded and checkpointed, from the start or from where a run was left."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from semifl.errors import UserError
from semifl.experiments.build import World, build_world
from semifl.experiments.checkpoint import Checkpoints
from semifl.experiments.config import Config
from semifl.experiments.modelfile import save_model
from semifl.experiments.records import Record, RunDirectory, environment, round_record
from semifl.federation.local import LocalFederation
from semifl.federation.memory import ClientMemory
from semifl.federation.sites import Place, ServerSite
from semifl.federation.tally import Tally
from semifl.federation.workers import Here, Pool, Workers, threads
from semifl.federation.world import Round
from semifl.learning.evaluation import Score
from semifl.learning.weights import Weights, digest, distance
from semifl.randomness import Seed

LABELS_ONLY = "labels_only"  # where the run without clients keeps its own checkpoints


class Observer(Protocol):
    """Whoever watches a run."""

    def begin(self, world: World, first_round: int) -> None: ...

    def labels_only(self, accuracy: float) -> None: ...

    def round(self, record: Record, best: float) -> None: ...

    def warn(self, message: str) -> None: ...

    def end(self, result: Record) -> None: ...


class Silent:
    """Nobody watches."""

    def begin(self, world: World, first_round: int) -> None:
        pass

    def labels_only(self, accuracy: float) -> None:
        pass

    def round(self, record: Record, best: float) -> None:
        pass

    def warn(self, message: str) -> None:
        pass

    def end(self, result: Record) -> None:
        pass


@dataclass
class Stage:
    """What the loop works with."""

    world: World
    place: Place
    pool: Pool
    server: ServerSite
    tally: Tally
    directory: RunDirectory
    observer: Observer
    first_weights: Weights

    @property
    def method(self) -> Any:
        return self.world.config.method.thing

    def clients(self, joined: bool = True) -> LocalFederation:
        size = len(self.world.division.clients) if joined else 0
        return LocalFederation(self.pool, size, self.tally)

    def round_at(self, index: int, progress_of: int) -> Round:
        """Round `index`, with the learning rate of round `progress_of`."""
        run = self.world.config.run
        seed = Seed(run.seed).under("round", index)
        self.server.seed = seed.under("server")
        return Round(index, (progress_of - 1) / run.rounds, seed)


def start(config: Config, out: Path, workers: int = 1, device: str = "cpu", observer: Observer | None = None) -> Record:
    """Run an experiment into a new directory."""
    world = build_world(config)
    directory = RunDirectory(out)
    directory.create(world.config)
    with directory.locked():
        return _run(world, directory, workers, device, observer or Silent())


def resume(
    out: Path, workers: int = 1, device: str = "cpu", observer: Observer | None = None, rounds: int | None = None
) -> Record:
    """Continue a run from its directory; `rounds` gives a run, finished or not, another number of rounds."""
    directory = RunDirectory(out)
    config = directory.config()
    with directory.locked():
        done = max(Checkpoints(directory.checkpoints).rounds(), default=0)
        finished = directory.result()
        if rounds is not None and rounds != config.run.rounds:
            if rounds < done:
                raise UserError(f"{out} has {done} rounds already, so it cannot be resumed to {rounds}")
            config = replace(config, run=replace(config.run, rounds=rounds))
            # Its learning rates were those of another number of rounds.
            shutil.rmtree(directory.checkpoints / LABELS_ONLY, ignore_errors=True)
            directory.write_config(config)
            directory.add_event("rounds changed", rounds=rounds, after=done)
        elif finished:
            return finished
        if not done and directory.rounds():
            raise UserError(
                f"{out} has lost its checkpoints, so its {len(directory.rounds())} rounds cannot be continued"
            )
        directory.add_event("resumed", after=done, environment=environment())
        return _run(build_world(config), directory, workers, device, observer or Silent())


def _run(world: World, directory: RunDirectory, workers: int, device: str, observer: Observer) -> Record:
    with _stage(world, directory, workers, device, observer) as stage:
        labels_only = _labels_only(stage) if world.config.run.labels_only else None
        saved = _load(stage, Checkpoints(directory.checkpoints))
        directory.keep_rounds(saved[0])
        if stage.place.memory:
            stage.place.memory.forget_after(saved[0])
        observer.begin(world, saved[0] + 1)
        last, state = _play(stage, *saved)
        result = _finish(stage, last, state, labels_only)
        observer.end(result)
        return result


@contextmanager
def _stage(world: World, directory: RunDirectory, workers: int, device: str, observer: Observer) -> Iterator[Stage]:
    place = world.place(ClientMemory(directory.checkpoints / "memory"), device)
    pool: Pool = Here(place)
    if workers > 1:
        place.share()
        pool = Workers(place, workers, on_loss=lambda code: directory.add_event("worker lost", exit_code=code))
    tally = Tally()
    server = ServerSite(place, world.division.server, world.data.labels, pool, world.config.run.threads, tally)
    try:
        # All but the server's own fits is done by one thread: two that wait for each other are slow on a busy machine.
        with threads(1):
            # The first weights are taken now: every fit leaves its own in the network.
            yield Stage(world, place, pool, server, tally, directory, observer, place.network.weights())
    finally:
        pool.close()


def _load(stage: Stage, checkpoints: Checkpoints) -> tuple[int, Any]:
    """Round and State to go on from."""
    first = stage.method.start(stage.first_weights)
    saved = checkpoints.load(type(first), stage.observer.warn)
    return (saved.round, saved.state) if saved else (0, first)


def _play(stage: Stage, done: int, state: Any) -> tuple[int, Any]:
    """The rounds that are still to come; returns the last one and the State after it."""
    checkpoints = Checkpoints(stage.directory.checkpoints)
    history = stage.directory.rounds()
    for index in range(done + 1, stage.world.config.run.rounds + 1):
        if _should_stop(stage.world.config, history):
            stage.directory.add_event("stopped early", after=index - 1)
            return index - 1, state
        began = time.perf_counter()
        stage.tally.reset()
        t = stage.round_at(index, index)
        before = stage.method.weights(state)
        state = stage.method.round(t, state, stage.server, stage.clients())
        after = stage.method.weights(state)
        record = round_record(t, stage.tally, distance(after, before), digest(after))
        record["seconds"]["total"] = round(time.perf_counter() - began, 4)
        if _best_on_validation(record, history):
            _save(stage, record)
        history.append(record)
        stage.directory.add_round(record)
        checkpoints.save(index, state)
        stage.observer.round(record, max(each["accuracy"] for each in history))
    return stage.world.config.run.rounds, state


def _labels_only(stage: Stage) -> Score:
    """The same model and server schedule with a federation that nobody has joined."""
    checkpoints = Checkpoints(stage.directory.checkpoints / LABELS_ONLY)
    done, state = _load(stage, checkpoints)
    rounds = stage.world.config.run.rounds
    stage.server.tests = False
    nobody = stage.clients(joined=False)
    for index in range(done + 1, rounds + 1):
        state = stage.method.round(stage.round_at(index, index), state, stage.server, nobody)
        checkpoints.save(index, state)
    model = stage.method.finish(stage.round_at(rounds + 1, rounds), state, stage.server, nobody)
    stage.server.tests = True
    score = stage.server.grade(model, "test")
    stage.observer.labels_only(score.accuracy)
    return score


def _finish(stage: Stage, last: int, state: Any, labels_only: Score | None) -> Record:
    """The final model, its scores, and the summary of the run."""
    stage.tally.reset()
    began = time.perf_counter()
    t = stage.round_at(last + 1, last)
    stage.server.test(stage.method.finish(t, state, stage.server, stage.clients()))
    assert stage.tally.tested is not None
    final = round_record(t, stage.tally, 0.0, digest(stage.tally.tested.weights))
    history = stage.directory.rounds()
    if _best_on_validation(final, history) or not stage.world.config.split.validation:
        _save(stage, final)
    result = summary(stage.world.config, [*history, final], labels_only, time.perf_counter() - began)
    stage.directory.write_result(result)
    return result


def _best_on_validation(record: Record, history: list[Record]) -> bool:
    """Whether this model should be kept because it does better than all before on the part of the labels held out."""
    earlier = [each["validation_accuracy"] for each in history if "validation_accuracy" in each]
    return "validation_accuracy" in record and record["validation_accuracy"] > max(earlier, default=-1.0)


def _save(stage: Stage, record: Record) -> None:
    """The tested model becomes model.safetensors."""
    config = stage.world.config
    assert stage.tally.tested is not None
    about = {
        "method": config.method.name,
        "dataset": config.data.name,
        "round": record["round"],
        "accuracy": record["accuracy"],
    }
    save_model(stage.directory.model, stage.world, stage.place.network, stage.tally.tested, about)


def _should_stop(config: Config, history: list[Record]) -> bool:
    stop = config.stop
    if stop.minutes and sum(record["seconds"]["total"] for record in history) >= 60 * stop.minutes:
        return True
    if not stop.patience or not history:
        return False
    best = max(history, key=lambda record: record["validation_accuracy"])
    return len(history) - history.index(best) > stop.patience


def summary(config: Config, records: list[Record], labels_only: Score | None, final_seconds: float) -> Record:
    """What result.json says; the last record is the final model, which competes for the best as one more round."""
    final = records[-1]
    by_test = max(records, key=lambda record: record["accuracy"])
    chooser = "validation_accuracy" if "validation_accuracy" in final else "accuracy"
    best = max(records, key=lambda record: float(record[chooser]))
    seconds = [record["seconds"]["total"] for record in records[:-1]]
    return {
        "method": config.method.name,
        "dataset": config.data.name,
        "seed": config.run.seed,
        "rounds": len(records) - 1,
        "accuracy": final["accuracy"],
        "balanced_accuracy": final["balanced_accuracy"],
        "best_accuracy": best["accuracy"],
        "best_round": best["round"],
        "best_test_accuracy": by_test["accuracy"],
        "best_test_round": by_test["round"],
        "labels_only_accuracy": labels_only.accuracy if labels_only else None,
        "seconds": round(sum(seconds) + final_seconds, 3),
        "seconds_per_round": round(sum(seconds) / len(seconds), 4) if seconds else None,
        "bytes_up": sum(record["bytes_up"] for record in records),
        "bytes_down": sum(record["bytes_down"] for record in records),
    }

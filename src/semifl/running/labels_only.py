"""What the server would have without any client: the same model and schedule in a federation that nobody has joined."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from semifl.federation.sites import ServerSite
from semifl.learning.evaluation import Score
from semifl.learning.weights import Snapshot, Weights
from semifl.running.binding import bound_to, refuse_another_config
from semifl.running.checkpoint import Checkpoints
from semifl.running.context import BaselineProgress, RunContext
from semifl.running.recording import scores

# Where their checkpoints lie.
LABELS_ONLY = {
    "start": "labels_only_start",
    "all": "labels_only",
    "train": "labels_only_train",
    "plain": "labels_only_plain",
    "plain_start": "labels_only_plain_start",
}


def models_to_train(context: RunContext) -> list[str]:
    """Return the keys of LABELS_ONLY that a run trains, in order."""
    run, method = context.world.config.run, context.method
    has_start, plain = run.start == "labels", method.plain_server()
    # A method that lives on the clients' labels does not learn without them, so it has no baseline to beat.
    is_compared = (run.labels_only and "client_labels" not in method.needs) or run.guard
    return [
        *(["start"] if has_start else []),
        *(["plain_start"] if is_compared and plain and has_start else []),
        *(["plain"] if is_compared and plain else []),
        *(["all"] if is_compared else []),
        *(["train"] if run.guard else []),
    ]


class LabelsOnly(NamedTuple):
    model: Snapshot
    test: Score
    validation: Score | None


Baselines = dict[str, LabelsOnly]  # "all" labels, "train": without those held out, "plain": all by a plain server


def train_labels_only(context: RunContext, method: Any, positions: Tensor, name: str, first: Weights) -> LabelsOnly:
    """Trained on these labeled pictures alone, and how good it is."""
    server = context.server_with(positions).alone()
    model = train_alone(context, method, server, name, first)
    held_out = server.grade(model, "validation") if context.world.config.split.validation else None
    return LabelsOnly(model, server.grade(model, "test"), held_out)


def train_alone(
    context: RunContext, method: Any, server: ServerSite, name: str, first: Weights, rounds_of: str = "round"
) -> Snapshot:
    """What this server makes of the first weights in rounds without clients.

    Checkpoints lie under `name`, so that nothing is trained twice. Rounds have the random numbers of the run's own,
    unless they are `rounds_of` something else.
    """
    checkpoints, nobody = Checkpoints(context.directory.checkpoints / name), context.nobody(method)
    state = method.start(first)
    world, rounds = context.world, context.world.config.run.rounds
    # Its learning rates hang on the rounds.
    bound = bound_to(world.config, rounds=rounds, labels_only=name, **world.deciding())
    saved = checkpoints.load([type(state)], context.observer.warn)
    done = 0
    if saved:
        refuse_another_config(saved.bound, bound, saved.path, context.directory.path / "config.toml")
        done, state = saved.round, saved.state
    names = [LABELS_ONLY[which] for which in models_to_train(context)]
    progress = BaselineProgress(names.index(name) + 1, len(names), done, rounds)
    if done < rounds:
        context.observer.baseline(progress)
    for index in range(done + 1, rounds + 1):
        t = context.round_at(index, index, rounds_of)
        state = method.round(t, state, server.at(t), nobody).state
        checkpoints.save(index, state, bound)
        context.observer.baseline(progress._replace(done=index))
    t = context.round_at(rounds + 1, rounds, rounds_of)
    model: Snapshot = method.finish(t, state, server.at(t), nobody)
    return model


def scores_alone(context: RunContext, baselines: Baselines) -> dict[str, float]:
    """What the labels alone reach, and where the method makes more of them than others what plain training does."""
    prefixes = {"labels_only": "all", "plain_labels_only": "plain"}
    return {
        f"{prefix}_{name}": value
        for prefix, which in prefixes.items()
        if which in baselines
        for name, value in scores(baselines[which].test, context.positive, None).items()
    }

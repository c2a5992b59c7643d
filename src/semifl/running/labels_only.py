"""What the server would have without any client: the same model and schedule in a federation that nobody has joined."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from semifl.learning.evaluation import Score
from semifl.learning.weights import Snapshot
from semifl.running.binding import bound_to, refuse_another_config
from semifl.running.checkpoint import Checkpoints
from semifl.running.context import RunContext


class LabelsOnly(NamedTuple):
    model: Snapshot
    test: Score
    validation: Score | None


def train_labels_only(context: RunContext, positions: Tensor, name: str) -> LabelsOnly:
    """Train on these labeled pictures alone; checkpoints under `name`, so that nothing is trained twice."""
    checkpoints = Checkpoints(context.directory.checkpoints / name)
    server, nobody = context.server_with(positions).alone(), context.nobody()
    state = context.method.start(context.first_weights)
    world, rounds = context.world, context.world.config.run.rounds
    # Its learning rates hang on the rounds.
    bound = bound_to(world.config, rounds=rounds, labels_only=name, **world.deciding())
    saved = checkpoints.load([type(state)], context.observer.warn)
    done = 0
    if saved:
        refuse_another_config(saved.bound, bound, saved.path, context.directory.path / "config.toml")
        done, state = saved.round, saved.state
    for index in range(done + 1, rounds + 1):
        t = context.round_at(index, index)
        state = context.method.round(t, state, server.at(t), nobody).state
        checkpoints.save(index, state, bound)
        context.observer.baseline(index, rounds)
    t = context.round_at(rounds + 1, rounds)
    model = context.method.finish(t, state, server.at(t), nobody)
    held_out = server.grade(model, "validation") if context.world.config.split.validation else None
    return LabelsOnly(model, server.grade(model, "test"), held_out)

"""A trial: what averages of a run's models over its rounds would be worth. Training itself never sees them.

`PYTHONPATH=results/cifar10 semifl run results/cifar10/held-out.toml --set method.name=averaged:Averaged …` prints every
tenth round what the model as trained has (0 is kept) and averages that keep a share of what they were.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from semifl.federation.sites import ServerSite
from semifl.federation.world import Federation, Round, RoundResult
from semifl.learning.weights import Snapshot, Weights
from semifl.methods import semifl_released
from semifl.methods.semifl_released import SemiFLReleased

KEPT = (0.0, 0.5, 0.8, 0.9)  # of an average in a round
EVERY = 10  # rounds


class State(NamedTuple):
    trained: semifl_released.State
    averages: tuple[Weights, ...]


@dataclass(frozen=True)
class Averaged(SemiFLReleased):
    def start(self, weights: Weights) -> State:  # type: ignore[override]
        return State(super().start(weights), (weights,) * len(KEPT))

    def round(self, t: Round, state: State, server: ServerSite, clients: Federation) -> RoundResult:  # type: ignore[override]
        trained, model = super().round(t, state.trained, server, clients)
        averages = tuple(
            {name: torch.lerp(model.weights[name], average[name], kept) for name in average}
            for kept, average in zip(KEPT, state.averages, strict=True)
        )
        if t.index % EVERY == 0:
            self.tell(t, averages, server, clients)
        return RoundResult(State(trained, averages), model)

    def tell(self, t: Round, averages: tuple[Weights, ...], server: ServerSite, clients: Federation) -> None:
        for kept, average in zip(KEPT, averages, strict=True):
            stats = self.refresh(average, server, clients, self.cohort(clients, t))
            print(t.index, kept, server.grade(Snapshot(average, stats), "test").accuracy, flush=True)

    def finish(self, t: Round, state: State, server: ServerSite, clients: Federation) -> Snapshot:  # type: ignore[override]
        return super().finish(t, state.trained, server, clients)

    def weights(self, state: State) -> Weights:
        return state.trained.weights

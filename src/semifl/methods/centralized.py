"""Centralized learning: no federation, one place with all the pictures; the upper and lower rows of the paper's tables.

With the labels of the server alone it is the paper's Partially Supervised, with everybody's its Fully Supervised, and
with another objective one of its semi-supervised rows. A round is one epoch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, Self

import torch
from torch import Tensor

from semifl.data.epochs import PairedBatch, paired_epoch
from semifl.federation.world import Federation, PooledServer, Preview, Round, RoundResult
from semifl.fields import Checked, Choice, Count, NotNegative, Positive, ShareBelowOne
from semifl.learning.network import Network
from semifl.learning.training import SGD, Fit, Memory, cosine
from semifl.learning.weights import Snapshot, Weights
from semifl.objectives import OBJECTIVES, Objective
from semifl.objectives.supervised import Supervised


class State(NamedTuple):
    weights: Weights  # as trained
    momentum: Memory  # the optimiser's
    memory: Memory  # the objective's; empty before the first round
    average: Weights  # the moving average of `weights`, if one is kept


@dataclass(frozen=True)
class Centralized(Checked):
    objective: Annotated[Objective, Choice(OBJECTIVES, "loss")] = Supervised()  # what a batch should teach
    labels: Literal["server", "all"] = "server"  # whose labels are known: "all" is Fully Supervised
    batch: Count = 10  # labeled pictures per step; beside them come objective.ratio times as many unlabeled ones
    lr: Positive = 0.1  # annealed by a cosine over the rounds
    momentum: ShareBelowOne = 0.9  # of the optimiser
    nesterov: bool = True  # Nesterov's form of it
    weight_decay: NotNegative = 5e-4  # of all weights, at every step
    clip_norm: NotNegative = 0.0  # largest gradient norm of a step; 0 does not clip
    annealing: Literal["cosine", "fixmatch"] = "cosine"  # of lr: to nothing, or FixMatch's cos(7π/16 · progress)
    ema: ShareBelowOne = 0.0  # decay of an average over steps, tested instead of the trained model; 0: no average
    strong_view: Literal["fixmatch", "reference"] = "fixmatch"  # FixMatch's own, or the released SemiFL program's

    @property
    def needs(self) -> frozenset[str]:
        if self.labels == "all":
            return frozenset({"pooled_images", "client_labels"})
        return frozenset({"pooled_images"} if self.objective.views else ())

    @property
    def wants_statistics(self) -> Literal["server"]:
        return "server"

    def preview(self) -> Preview:
        return Preview(self.strong_view, None, self.objective.confident_from())

    def busiest(self) -> Self:
        return self

    def plain_server(self) -> None:
        return None

    def start(self, weights: Weights) -> State:
        return State(weights, {}, {}, copy(weights) if self.ema else {})

    def round(self, t: Round, state: State, server: PooledServer, clients: Federation) -> RoundResult:
        classes = server.facts.classes
        memory = copy(state.memory) or self.objective.start(state.weights, classes)  # training changes it in place
        average = copy(state.average)

        def loss(network: Network, batch: PairedBatch) -> dict[str, Tensor]:
            move(memory, network.device)
            return self.objective.loss(network, batch, memory, t.progress)

        def after_step(network: Network) -> None:
            self.objective.after_step(network, memory)
            if self.ema:
                move(average, network.device)
                network.average_into(average, self.ema)

        sgd = SGD(self.lr_at(t.progress), self.momentum, self.nesterov, self.weight_decay, self.clip_norm)
        seed = server.seed.under("fit")
        fitted = server.fit(
            Fit(state.weights, self.epoch(server), loss, sgd, seed, state.momentum, after_step=after_step)
        )
        move(memory, torch.device("cpu"))
        move(average, torch.device("cpu"))
        state = State(fitted.weights, fitted.memory, memory, average)
        return RoundResult(state, self.model(state, server))

    def lr_at(self, progress: float) -> float:
        return (
            self.lr * math.cos(7 * math.pi / 16 * progress)
            if self.annealing == "fixmatch"
            else cosine(self.lr, progress)
        )

    def epoch(self, server: PooledServer) -> Iterator[PairedBatch]:
        """One pass over the unlabeled pictures, or over the labels if the objective looks at nothing else."""
        labeled = server.images, server.labels
        if self.labels == "all":
            labeled = torch.cat([server.images, server.pooled_images]), torch.cat([server.labels, server.pooled_labels])
        objective = self.objective
        unlabeled = server.pooled_images if objective.views else server.images[:0]
        return paired_epoch(
            labeled,
            unlabeled,
            objective.views,
            server.facts,
            self.batch,
            objective.ratio,
            server.seed.under("epoch"),
            self.strong_view,
        )

    def finish(self, t: Round, state: State, server: PooledServer, clients: Federation) -> Snapshot:
        return self.model(state, server)

    def model(self, state: State, server: PooledServer) -> Snapshot:
        W = self.weights(state)
        return Snapshot(W, server.statistics(W, pooled="pooled_images" in self.needs))

    def weights(self, state: State) -> Weights:
        """Of the model that is tested: as trained, or an average that the objective or `ema` keeps."""
        W = state.average or state.weights
        return self.objective.result(W, state.memory) if state.memory else W


def copy(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}


def move(tensors: dict[str, Tensor], device: torch.device) -> None:
    """All of them to where the network is, or back, in the same dictionary; a count stays where it can be read."""
    for name, tensor in tensors.items():
        tensors[name] = tensor.to(device) if tensor.is_floating_point() or tensor.dim() else tensor

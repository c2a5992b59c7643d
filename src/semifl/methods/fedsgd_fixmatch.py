"""FedSGD + FixMatch: every step is an exchange (figure 2 of the SemiFL paper: why this is not communication-efficient).

At each step some clients get the model and give the gradient of one batch: L_u of the pictures that are confident. The
server adds the gradient of a labeled batch, L_s, and takes one step with its one optimiser, whose momentum lives on. A
recorded round is many steps: with as many laps as a client has batches, a pass over everybody's pictures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from semifl.data.augment import normalize, strong, weak
from semifl.data.batches import shuffled
from semifl.data.epochs import LabeledBatch, UnlabeledBatch
from semifl.federation.recipe import SemiSupervised
from semifl.federation.world import Client, Cohort, Federation, Round, RoundResult, Server, Update, Work
from semifl.fields import Count
from semifl.learning.aggregation import Mean
from semifl.learning.evaluation import blocks
from semifl.learning.network import Network
from semifl.learning.server_optimizer import Momentum, ServerOptimizer
from semifl.learning.targets import Beliefs
from semifl.learning.training import SGD, Fit, Loss, Memory
from semifl.learning.weights import Snapshot, Weights, average, changed
from semifl.methods._consistency import said_of, sure_loss, sure_places

GRADIENT = SGD(lr=1.0, momentum=0.0, nesterov=False, weight_decay=0.0)  # a change of −1 × the gradient


class State(NamedTuple):
    weights: Weights
    momentum: Memory  # of the server's optimiser


@dataclass(frozen=True)
class FedSGDFixMatch(SemiSupervised):
    server_optimizer: ServerOptimizer = Momentum(momentum=0.0)  # none: the server's SGD is the global step
    laps: Count = 1  # how often each client is asked for a batch in a round; all its batches: a pass over all pictures

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.server_optimizer != Momentum(momentum=0.0):
            raise ValueError(
                "server_optimizer has no effect in fedsgd_fixmatch: lr, momentum and nesterov are its step"
            )
        if self.proximal:
            raise ValueError("proximal has no effect in fedsgd_fixmatch: a client sends a gradient where it stands")
        if self.aggregation != Mean():
            raise ValueError('aggregation.name must be "mean" in fedsgd_fixmatch: gradients are added up')

    def start(self, weights: Weights) -> State:
        return State(weights, {})

    def round(self, t: Round, state: State, server: Server, clients: Federation) -> RoundResult:
        cohorts = list(self.cohorts(clients, t))
        labeled = self.server_batches(server, len(cohorts))
        plain = self.labeled_loss(server.labels, server.facts.classes)
        if not cohorts:  # nobody has joined: the labels alone, as in every method
            W, momentum, _ = self.server_fit(t, state.weights, server, state.momentum)
            state = State(W, momentum)
        for step, (lap, S) in enumerate(cohorts):
            W = state.weights
            replies = clients.each(S, W, t, own=partial(_lap, lap))
            updates = (reply.update for reply in replies if reply.update)
            change = average(((each.change, float(each.examples)) for each in updates), clients.max_share)
            loss = partial(joint_loss, labeled=plain, change=change)
            seed = server.seed.under("fit", step)
            fitted = server.fit(Fit(W, [next(labeled)], loss, self.local_sgd(t), seed, state.momentum))
            state = State(fitted.weights, fitted.memory)
        return RoundResult(state, self.finish(t, state, server, clients))

    def cohorts(self, clients: Federation, t: Round) -> Iterator[tuple[int, Cohort]]:
        """Who takes part in each step: in a lap everyone once, in random order, as many at a time as C allows."""
        M = len(clients)
        if M == 0:
            return
        size = self.cohort_size(M)
        for lap in range(self.laps):
            order = torch.randperm(M, generator=t.seed.at("lap", lap)).tolist()
            yield from ((lap, tuple(sorted(order[first : first + size]))) for first in range(0, M, size))

    def finish(self, t: Round, state: State, server: Server, clients: Federation) -> Snapshot:
        return Snapshot(state.weights, self.refresh(state.weights, server, clients, self.cohort(clients, t)))

    def weights(self, state: State) -> Weights:
        return state.weights

    def client_work(self, pictures: int) -> Work:
        return self.stepped_work(self.laps, pictures)

    def sent_weights(self, message: tuple[Weights, int]) -> Weights:
        return message[0]

    def sent_model(self, message: tuple[Weights, int]) -> None:
        return None

    def client_update(self, client: Client, message: tuple[Weights, int], t: Round) -> Update | None:
        """The gradient of this lap's batch, as the change that a step of rate 1 makes; None if nothing is confident."""
        W, lap = message
        if len(client.images) == 0:
            return None
        beliefs = Beliefs(len(client.images))
        loss = partial(self.client_loss, beliefs=beliefs)
        batch = self.lap_batch(client, lap)
        fitted = client.fit(Fit(W, [batch], loss, GRADIENT, client.seed.under("fit", lap)))
        confident = beliefs.tell(client, self.threshold)
        if confident == 0:
            return None
        return Update(changed(fitted.weights, W), confident, fitted.terms, {})

    def lap_batch(self, client: Client, lap: int) -> UnlabeledBatch:
        """The next batch of a random order of the client's pictures; after the last one a new order begins."""
        count, facts = len(client.images), client.facts
        cuts = blocks(max(count, 2), self.client_batch)  # one picture alone comes twice
        order = shuffled(torch.arange(count), client.seed.at("order", lap // len(cuts)))
        part, seed = order[cuts[lap % len(cuts)]], client.seed.under("lap", lap)
        images = client.images[part]
        views = weak(images, facts, seed.at("weak")), strong(images, facts, self.strong_view, seed.at("strong"))
        return UnlabeledBatch(tuple(normalize(view, facts) for view in views), part)

    def client_loss(self, network: Network, batch: UnlabeledBatch, beliefs: Beliefs) -> dict[str, Tensor]:
        weak_view, strong_view = batch.views
        pseudo = said_of(network, weak_view)
        beliefs.note(batch.positions, pseudo)
        sure = sure_places(pseudo, self.threshold)
        return {"loss": sure_loss(network, strong_view, pseudo, sure)} if len(sure) else {}


def joint_loss(network: Network, batch: LabeledBatch, labeled: Loss, change: Weights | None) -> dict[str, Tensor]:
    """L_s, and beside it a linear term whose gradient is the clients' and whose value is nothing."""
    L_s = labeled(network, batch)["loss"]
    if change is None:
        return {"loss": L_s}
    parts = [(W * change[name].to(W.device)).sum() for name, W in network.module.named_parameters() if name in change]
    linear = -torch.stack(parts).sum()
    return {"loss": L_s + linear - linear.detach()}


def _lap(lap: int, client: int) -> int:
    return lap

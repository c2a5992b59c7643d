"""FedRGD (Zhang et al. 2020): random groups, each with a replica of the labeled server.

Everybody trains for a fixed number of iterations: each group's replica on the labels, its clients by a consistency loss
as in FixMatch. Then each group is averaged, replica and clients alike. A client goes on from its group's average; only
the replicas are averaged across the groups. So models of different groups stay apart, and each has seen the labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Literal, NamedTuple

import torch

from semifl.data.epochs import labeled_epochs
from semifl.federation.recipe import SemiSupervised
from semifl.federation.world import Client, ClientId, Cohort, Federation, Round, RoundResult, Server, Update, Work
from semifl.fields import Count, Whole
from semifl.learning.aggregation import Mean
from semifl.learning.server_optimizer import Momentum, Past, ServerOptimizer
from semifl.learning.training import Fit, Fitted, Memory
from semifl.learning.weights import Fold, Snapshot, Weights, add, changed
from semifl.methods._consistency import Consistency
from semifl.objectives.fixmatch import FixMatch


class State(NamedTuple):
    weights: Weights  # of all replicas, which are alike after a round
    past: Past  # of the global step
    groups: tuple[Weights, ...]  # the last round's averages; none before the first
    group_of: dict[ClientId, int]  # who was in which
    replica_memories: tuple[Memory, ...]  # the replicas' momentum, if it is kept


@dataclass(frozen=True)
class FedRGD(SemiSupervised):
    server_optimizer: ServerOptimizer = Momentum(momentum=0.0)  # the replicas' average is the next model
    groups: Count = 2  # into which the cohort is dealt, anew in every round
    iterations: Whole = 16  # steps between two averages, at each replica and each client; 0: whole epochs
    client_buffers: Literal["fresh", "kept"] = "fresh"  # the clients' momentum between their rounds
    server_buffers: Literal["fresh", "kept"] = "fresh"  # the replicas' momentum between rounds

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.aggregation != Mean():
            raise ValueError('aggregation.name must be "mean" in fedrgd: groups are averaged')

    def start(self, weights: Weights) -> State:
        return State(weights, self.server_optimizer.start(weights), (), {}, ())

    def round(self, t: Round, state: State, server: Server, clients: Federation) -> RoundResult:
        W, S_t = state.weights, self.cohort(clients, t)
        model = Snapshot(W, self.refresh(W, server, clients, S_t))
        group_of = self.deal(S_t, t)
        start = {m: self.start_of(m, state) for m in S_t}

        groups, memories = [Fold() for _ in range(self.groups)], []
        for g, group in enumerate(groups):
            fitted = self.replica_fit(g, t, state, server)
            group.add(fitted.weights)
            memories.append(fitted.memory if self.server_buffers == "kept" else {})
        for reply in clients.each(S_t, (), t, own=start.__getitem__):
            if reply.update:
                groups[group_of[reply.client]].add(add(start[reply.client], reply.update.change))

        averages = tuple(average for group in groups if (average := group.mean()))
        step = self.server_optimizer.step(W, Mean()(averages), state.past)
        return RoundResult(State(*step, averages, group_of, tuple(memories)), model)

    def deal(self, S_t: Cohort, t: Round) -> dict[ClientId, int]:
        """Groups whose sizes differ by one client at most."""
        places = torch.randperm(len(S_t), generator=t.seed.at("groups")).tolist()
        return {m: place % self.groups for m, place in zip(S_t, places, strict=True)}

    def start_of(self, m: ClientId, state: State) -> Weights:
        """The average of the client's last group; the replicas' model if it was not there in the last round."""
        return state.groups[state.group_of[m]] if m in state.group_of else state.weights

    def replica_fit(self, g: int, t: Round, state: State, server: Server) -> Fitted:
        """One group's replica: the same labels, in an order of its own."""
        seed, passes = server.seed.under("replica", g), self.iterations or self.server_epochs
        batches = labeled_epochs(server.images, server.labels, server.facts, self.server_batch, passes, seed)
        loss = self.labeled_loss(server.labels, server.facts.classes)
        memory = state.replica_memories[g] if state.replica_memories else None
        steps = islice(batches, self.iterations or None)
        return server.fit(Fit(state.weights, steps, loss, self.local_sgd(t), seed.under("fit"), memory))

    def finish(self, t: Round, state: State, server: Server, clients: Federation) -> Snapshot:
        return Snapshot(state.weights, self.refresh(state.weights, server, clients, self.cohort(clients, t)))

    def weights(self, state: State) -> Weights:
        return state.weights

    def sent_model(self, message: tuple[tuple[()], Weights]) -> None:
        return None

    def sent_weights(self, message: tuple[tuple[()], Weights]) -> Weights:
        return message[1]

    def client_work(self, pictures: int) -> Work:
        return self.stepped_work(self.iterations, pictures)

    def client_update(self, client: Client, message: tuple[tuple[()], Weights], t: Round) -> Update:
        start, kept = message[1], self.client_buffers == "kept"
        consistency = Consistency(FixMatch(threshold=self.threshold), client)
        batches, seed = self.client_batches(client, self.iterations), client.seed.under("fit")
        memory = client.memory if kept else None
        fitted = client.fit(Fit(start, batches, consistency.loss, self.client_sgd(t), seed, memory))
        consistency.tell()
        memory = fitted.memory if kept else {}
        return Update(changed(fitted.weights, start), len(client.images), fitted.terms, memory)

"""FedRGD (Zhang et al. 2020): random group averaging, with the labeled server in every group.

Server and clients train in parallel for a fixed number of iterations: the server on its labels, the clients by a
consistency loss as in FixMatch. Then the clients are dealt at random into groups; each group is averaged together with
the server, and the groups with each other, so that the labels weigh the more, the smaller the groups.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch

from semifl.federation.recipe import Averaging, SemiSupervised, State
from semifl.federation.world import Client, Cohort, Federation, Reply, Round, RoundResult, Server, Update, Work
from semifl.fields import Count, Whole
from semifl.learning.aggregation import Mean
from semifl.learning.server_optimizer import Momentum, ServerOptimizer
from semifl.learning.training import Fit
from semifl.learning.weights import Fold, Snapshot, Weights, add, changed
from semifl.methods._consistency import Consistency
from semifl.objectives.fixmatch import FixMatch


@dataclass(frozen=True)
class FedRGD(SemiSupervised, Averaging):
    server_optimizer: ServerOptimizer = Momentum(momentum=0.0)  # the average is the next model
    groups: Count = 2  # into which the cohort is dealt, anew in every round
    iterations: Whole = 16  # steps between two averages, at the server and at each client; 0: whole epochs
    step_from: Literal["sent", "server"] = "sent"  # where the global step starts; the released program: the server's

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.aggregation != Mean():
            raise ValueError('aggregation.name must be "mean" in fedrgd: groups are averaged')

    def round(self, t: Round, state: State, server: Server, clients: Federation) -> RoundResult:
        W, S_t = state.weights, self.cohort(clients, t)
        model = Snapshot(W, self.refresh(W, server, clients, S_t))
        W_s = self.server_fit(t, W, server, steps=self.iterations).weights
        mean = self.group_average(W, W_s, clients.each(S_t, model, t), S_t, t)
        step = self.server_optimizer.step(W_s if self.step_from == "server" else W, mean, state.past)
        return RoundResult(State(*step), model)

    def group_average(self, W: Weights, W_s: Weights, replies: Iterable[Reply], S_t: Cohort, t: Round) -> Weights:
        """Each group's mean with the server, then the mean of the groups that answered; the server if none did."""
        dealt = torch.randperm(len(S_t), generator=t.seed.at("groups"))
        group_of = {client: int(place) % self.groups for client, place in zip(S_t, dealt, strict=True)}
        groups: dict[int, Fold] = {}
        for reply in replies:
            if reply.update:
                group = group_of[reply.client]
                if group not in groups:
                    groups[group] = Fold()
                    groups[group].add(W_s)
                groups[group].add(add(W, reply.update.change))
        total = Fold()
        for group in sorted(groups):
            mean = groups[group].mean()
            assert mean is not None
            total.add(mean)
        return total.mean() or W_s

    def client_work(self, pictures: int) -> Work:
        return self.stepped_work(self.iterations, pictures)

    def client_update(self, client: Client, model: Snapshot, t: Round) -> Update:
        consistency = Consistency(FixMatch(threshold=self.threshold), client)
        batches, seed = self.client_batches(client, self.iterations), client.seed.under("fit")
        fitted = client.fit(Fit(model.weights, batches, consistency.loss, self.client_sgd(t), seed))
        consistency.tell()
        return Update(changed(fitted.weights, model.weights), len(client.images), fitted.terms, {})

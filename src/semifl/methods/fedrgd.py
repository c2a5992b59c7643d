"""FedRGD (Zhang et al. 2020): random group averaging, with the labeled server in every group.

Server and clients train in parallel for a fixed number of iterations: the server on its labels, the clients by a
consistency loss as in FixMatch. Then the clients are dealt at random into groups; each group is averaged together with
the server, and the groups with each other, so that the labels weigh the more, the smaller the groups.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch

from semifl.federation.recipe import Averaging, State
from semifl.federation.world import Client, Cohort, Federation, Played, Preview, Reply, Round, Server, Update, Work
from semifl.learning.weights import Fold, Snapshot, Weights, add, changed
from semifl.methods._consistency import consistency_fit
from semifl.objectives.fixmatch import FixMatch


@dataclass(frozen=True)
class FedRGD(Averaging):
    server_momentum: float = 0.0  # the average is the next model
    threshold: float = 0.95  # τ
    groups: int = 2  # into which the cohort is dealt, anew in every round
    iterations: int = 16  # steps between two averages, at the server and at each client; 0: whole epochs
    step_from: Literal["sent", "server"] = "sent"  # where the global step starts; the released program: the server's
    strong_view: Literal["fixmatch", "reference"] = "fixmatch"  # FixMatch's own, or the released SemiFL program's

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.groups < 1:
            raise ValueError(f"groups must be at least 1, not {self.groups}")
        if self.iterations < 0:
            raise ValueError(f"iterations must not be negative, but is {self.iterations}")
        if self.aggregation != "mean":
            raise ValueError(f"aggregation must be 'mean', not {self.aggregation!r}: groups are averaged")

    def round(self, t: Round, state: State, server: Server, clients: Federation) -> Played:
        W, S_t = state.weights, self.cohort(clients, t)
        model = Snapshot(W, self.refresh(W, server, clients, S_t))
        W_s = self.server_fit(t, W, server, self.iterations)
        replies = clients.each(S_t, model, t)
        mean = self.group_average(W, W_s, replies, S_t, t)
        return Played(State(*self.server_step.take(W_s if self.step_from == "server" else W, mean, state.past)), model)

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

    def preview(self) -> Preview:
        return Preview(self.strong_view, None, self.threshold)

    def busiest(self) -> Self:
        return replace(self, threshold=0.0)

    def client_work(self, pictures: int) -> Work:
        return self.counted_work(self.iterations, pictures) if self.iterations else super().client_work(pictures)

    def client_update(self, client: Client, model: Snapshot, t: Round) -> Update:
        batches = self.client_batches(client, self.strong_view, self.iterations)
        fitted = consistency_fit(client, model.weights, batches, FixMatch(threshold=self.threshold), self.client_sgd(t))
        return Update(changed(fitted.weights, model.weights), len(client.images), fitted.terms, {})

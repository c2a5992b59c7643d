"""FedAvg + FixMatch: the plain combination that SemiFL is measured against (its paper's component table and figure 2).

Server and clients train in parallel from the same weights: the server on its labels, each client by FixMatch's
consistency loss with pseudo-labels that its own network makes for every batch. Half of the next model is the server's.
With `local_steps = 1` everybody takes one step a round: FedSGD.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, Self

from semifl.federation.recipe import Averaging, State
from semifl.federation.world import Client, Federation, Played, Preview, Round, Server, Update, Work
from semifl.learning import local_norm
from semifl.learning.aggregation import aggregate, with_server
from semifl.learning.weights import Snapshot, Weights, changed, moved
from semifl.methods._consistency import consistency_fit
from semifl.objectives.fixmatch import FixMatch


@dataclass(frozen=True)
class FedAvgFixMatch(Averaging):
    threshold: float = 0.95  # τ
    server_share: float = 0.5  # of the server's model in the average; the clients share the rest
    local_steps: int = 0  # batches that everyone trains on in a round; 0: whole epochs, 1: FedSGD
    strong_view: Literal["fixmatch", "reference"] = "fixmatch"  # FixMatch's own, or the released SemiFL program's
    step_from: Literal["sent", "server"] = "sent"  # where the global step starts; the released program: the server's
    local_norm: bool = False  # FedBN: BatchNorm's scale and shift stay with each client

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.server_share <= 1:
            raise ValueError(f"server_share must lie between 0 and 1, not {self.server_share}")
        if self.local_steps < 0:
            raise ValueError(f"local_steps must not be negative, but is {self.local_steps}")

    def round(self, t: Round, state: State, server: Server, clients: Federation) -> Played:
        W, S_t = state.weights, self.cohort(clients, t)
        model = Snapshot(W, self.refresh(W, server, clients, S_t))
        W_s = self.server_fit(t, W, server, self.local_steps)
        replies = clients.each(S_t, model, t)
        changes = (reply.update.change for reply in replies if reply.update)
        W_u = moved(self.sent_weights(model), aggregate(self.aggregation, changes, self.trim))
        mean = with_server(W_s, W_u and W_s | W_u, self.server_share)
        return Played(State(*self.server_step.take(W_s if self.step_from == "server" else W, mean, state.past)), model)

    def preview(self) -> Preview:
        return Preview(self.strong_view, None, self.threshold)

    def busiest(self) -> Self:
        return replace(self, threshold=0.0)

    def client_work(self, pictures: int) -> Work:
        return self.counted_work(self.local_steps, pictures) if self.local_steps else super().client_work(pictures)

    def sent_weights(self, model: Snapshot) -> Weights:
        return local_norm.shared(model.weights, model.stats) if self.local_norm else model.weights

    def client_update(self, client: Client, model: Snapshot, t: Round) -> Update:
        batches = self.client_batches(client, self.strong_view, self.local_steps)
        start = local_norm.restored(model.weights, client.memory) if self.local_norm else model.weights
        fitted = consistency_fit(client, start, batches, FixMatch(threshold=self.threshold), self.client_sgd(t))
        kept = local_norm.kept(fitted.weights, model.stats) if self.local_norm else {}
        return Update(changed(fitted.weights, self.sent_weights(model)), len(client.images), fitted.terms, kept)

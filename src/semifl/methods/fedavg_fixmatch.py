"""FedAvg + FixMatch: the plain combination that SemiFL is measured against (its paper's component table and figure 2).

Server and clients train in parallel from the same weights: the server on its labels, each client by FixMatch's
consistency loss with pseudo-labels that its own network makes for every batch. Half of the next model is the server's.
With `local_steps = 1` everybody takes one step a round: FedSGD.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from semifl.federation.recipe import Averaging, LocalNorm, SemiSupervised, State
from semifl.federation.world import Client, Federation, Round, RoundResult, Server, Update, Work
from semifl.fields import Share, Whole
from semifl.learning.aggregation import with_server
from semifl.learning.weights import Snapshot
from semifl.methods._consistency import Consistency
from semifl.objectives.fixmatch import FixMatch


@dataclass(frozen=True)
class FedAvgFixMatch(SemiSupervised, LocalNorm, Averaging):
    server_share: Share = 0.5  # of the server's model in the average; the clients share the rest
    local_steps: Whole = 0  # batches that everyone trains on in a round; 0: whole epochs, 1: FedSGD
    step_from: Literal["sent", "server"] = "sent"  # where the global step starts; the released program: the server's

    def round(self, t: Round, state: State, server: Server, clients: Federation) -> RoundResult:
        W, S_t = state.weights, self.cohort(clients, t)
        model = Snapshot(W, self.refresh(W, server, clients, S_t))
        W_s = self.server_fit(t, W, server, steps=self.local_steps).weights
        W_u = self.aggregate(clients.each(S_t, model, t), self.sent_weights(model))
        mean = with_server(W_s, W_u and W_s | W_u, self.server_share)  # norms that stay with clients are the server's
        step = self.server_optimizer.step(W_s if self.step_from == "server" else W, mean, state.past)
        return RoundResult(State(*step), model)

    def client_work(self, pictures: int) -> Work:
        return self.stepped_work(self.local_steps, pictures)

    def client_update(self, client: Client, model: Snapshot, t: Round) -> Update:
        consistency = Consistency(FixMatch(threshold=self.threshold), client)
        batches = self.client_batches(client, self.local_steps)
        fitted = self.client_fit(client, model, t, batches, consistency.loss)
        consistency.tell()
        return self.update(model, fitted, len(client.images))

"""FedAvg + FixMatch: the plain combination that SemiFL is measured against, as one would write it today.

Server and clients train in parallel from the same weights: the server on its labels, each client by FixMatch's
consistency loss with pseudo-labels that its own network makes for every batch. Half of the next model is the server's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from semifl.federation.recipe import Averaging, LocalNorm, SemiSupervised, State
from semifl.federation.world import Client, Federation, Round, RoundResult, Server, Update
from semifl.fields import Share
from semifl.learning.aggregation import with_server
from semifl.learning.weights import Snapshot
from semifl.methods._consistency import Consistency
from semifl.objectives.fixmatch import FixMatch


@dataclass(frozen=True)
class FedAvgFixMatch(SemiSupervised, LocalNorm, Averaging):
    server_share: Share = 0.5  # of the server's model in the average; the clients share the rest
    step_from: Literal["sent", "server"] = "sent"  # where the global step starts; the released program: the server's

    def round(self, t: Round, state: State, server: Server, clients: Federation) -> RoundResult:
        W, S_t = state.weights, self.cohort(clients, t)
        model = Snapshot(W, self.refresh(W, server, clients, S_t))
        W_s = self.server_fit(t, W, server).weights
        W_u = self.aggregate(clients.each(S_t, model, t), self.sent_weights(model))
        mean = with_server(W_s, W_u, self.server_share)
        step = self.server_optimizer.step(W_s if self.step_from == "server" else W, mean, state.past)
        return RoundResult(State(*step), model)

    def client_update(self, client: Client, model: Snapshot, t: Round) -> Update:
        consistency = Consistency(FixMatch(threshold=self.threshold), client)
        fitted = self.client_fit(client, model, t, self.client_batches(client), consistency.loss)
        consistency.tell()
        return self.update(model, fitted, len(client.images))

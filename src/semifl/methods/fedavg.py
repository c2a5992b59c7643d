"""FedAvg (McMahan et al. 2017) with labels at the clients: what supervised federated learning would reach.

Its options are the family: FedProx (`proximal`), FedOpt (`server_rule`), FedBN (`local_norm`).
`docs/methods/fedavg.md` lists the differences from the papers and from the released SemiFL program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from semifl.data.epochs import labeled_epochs
from semifl.federation.recipe import Averaging, State
from semifl.federation.world import Cohort, Federation, LabeledClient, Played, Round, Server, Update
from semifl.learning import local_norm
from semifl.learning.aggregation import aggregate
from semifl.learning.training import Fit
from semifl.learning.weights import Snapshot, Weights, average, changed, moved


@dataclass(frozen=True)
class FedAvg(Averaging):
    """The server's labels train nothing: its pictures serve the BatchNorm statistics of the model that is tested."""

    needs: ClassVar[frozenset[str]] = frozenset({"client_labels"})

    weighting: Literal["examples", "uniform"] = "examples"  # of the clients in the mean
    local_norm: bool = False  # FedBN: BatchNorm's scale and shift stay with each client
    client_buffers: Literal["fresh", "kept"] = "fresh"  # the clients' momentum between their rounds

    def round(self, t: Round, state: State, server: Server, clients: Federation) -> Played:
        S_t = self.cohort(clients, t)
        model = Snapshot(state.weights, self.refresh(state.weights, server, clients, S_t))
        mean = self.gather(model, clients, S_t, t)
        return Played(State(*self.server_step.take(state.weights, mean, state.past)), model)

    def gather(self, model: Snapshot, clients: Federation, S_t: Cohort, t: Round) -> Weights | None:
        """Σ n_k/n · w_k over the clients that trained; None if nobody did."""
        replies = clients.each(S_t, model, t)
        updates = (reply.update for reply in replies if reply.update)
        if self.aggregation == "mean" and self.weighting == "examples":
            change = average((update.change, float(update.examples)) for update in updates)
        else:
            change = aggregate(self.aggregation, (update.change for update in updates), self.trim)
        return moved(model.weights, change)

    def sent_weights(self, model: Snapshot) -> Weights:
        return local_norm.shared(model.weights, model.stats) if self.local_norm else model.weights

    # ClientUpdate

    def client_update(self, client: LabeledClient, model: Snapshot, t: Round) -> Update | None:
        n = len(client.labels)
        if n == 0:
            return None
        epochs = labeled_epochs(
            client.images, client.labels, client.facts, self.client_batch, self.client_epochs, client.seed
        )
        start = local_norm.restored(model.weights, client.memory) if self.local_norm else model.weights
        buffers = client.memory if self.client_buffers == "kept" else None
        loss = self.labeled_loss(client.labels, client.facts.classes)
        job = Fit(start, epochs, loss, self.client_sgd(t), client.seed.under("fit"), buffers)
        w, memory, terms = client.fit(job)
        keep = memory if self.client_buffers == "kept" else {}
        if self.local_norm:
            keep = keep | local_norm.kept(w, model.stats)
        return Update(changed(w, self.sent_weights(model)), n, terms, keep)

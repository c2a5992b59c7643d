"""FedAvg (McMahan et al. 2017) with labels at the clients: what supervised federated learning would reach.

Its options are the family: FedProx (`proximal`), FedOpt (`server_optimizer`), FedBN (`local_norm`).
`docs/methods/fedavg.md` lists the differences from the papers and from the released SemiFL program.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

from semifl.data.epochs import labeled_epochs
from semifl.federation.recipe import Averaging, LocalNorm, State
from semifl.federation.world import Federation, LabeledClient, Reply, Round, RoundResult, Server, Update
from semifl.learning.aggregation import Mean
from semifl.learning.weights import Snapshot, Weights, average, moved


@dataclass(frozen=True)
class FedAvg(LocalNorm, Averaging):
    """The server's labels train nothing: its pictures serve the BatchNorm statistics of the model that is tested."""

    needs: ClassVar[frozenset[str]] = frozenset({"client_labels"})

    weighting: Literal["examples", "uniform"] = "examples"  # of the clients in the mean
    client_buffers: Literal["fresh", "kept"] = "fresh"  # the clients' momentum between their rounds

    @property
    def keeps_momentum(self) -> bool:
        return self.client_buffers == "kept"

    def round(self, t: Round, state: State, server: Server, clients: Federation) -> RoundResult:
        S_t = self.cohort(clients, t)
        model = Snapshot(state.weights, self.refresh(state.weights, server, clients, S_t))
        mean = self.aggregate(clients.each(S_t, model, t), model.weights)
        return RoundResult(State(*self.server_optimizer.step(state.weights, mean, state.past)), model)

    def aggregate(self, replies: Iterable[Reply], start: Weights) -> Weights | None:
        """Σ n_k/n · w_k over the clients that trained; a robust mean, or one of everyone alike, knows no n_k."""
        if self.weighting == "uniform" or self.aggregation != Mean():
            return super().aggregate(replies, start)
        updates = (reply.update for reply in replies if reply.update)
        return moved(start, average((update.change, float(update.examples)) for update in updates))

    def client_update(self, client: LabeledClient, model: Snapshot, t: Round) -> Update | None:
        n = len(client.labels)
        if n == 0:
            return None
        epochs = labeled_epochs(
            client.images, client.labels, client.facts, self.client_batch, self.client_epochs, client.seed
        )
        loss = self.labeled_loss(client.labels, client.facts.classes)
        return self.update(model, self.client_fit(client, model, t, epochs, loss), n)

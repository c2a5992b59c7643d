"""SemiFL without one or both of its two ideas: the paper's component table, run as the released program runs it.

Without fine-tuning the server trains beside the clients and not before them. Without labels from the global model each
batch is labeled by the network in training. `docs/methods/semifl_ablated.md` has the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from semifl.data.augment import mix
from semifl.data.epochs import UnlabeledBatch
from semifl.federation.world import Client, Cohort, Federation, Round, RoundResult, Server, Update
from semifl.learning.aggregation import with_server
from semifl.learning.network import Network
from semifl.learning.targets import Beliefs
from semifl.learning.weights import Snapshot, Weights
from semifl.methods._consistency import said_of, sure_loss, sure_places
from semifl.methods.semifl_released import SemiFLReleased, State


@dataclass(frozen=True)
class SemiFLAblated(SemiFLReleased):
    training: Literal["parallel", "alternate"] = "parallel"  # "parallel": server and clients from the same weights
    labeling: Literal["batch", "global"] = "batch"  # "batch": each batch by the network in training
    step_from: Literal["sent", "server"] = "sent"  # where the global step of parallel training starts

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.training == "alternate" and self.step_from == "server":
            raise ValueError('step_from has no effect with training = "alternate": leave it out')

    def round(self, t: Round, state: State, server: Server, clients: Federation) -> RoundResult:  # type: ignore[override]
        """Without fine-tuning, half of the new model is the server's own.

        The released program starts the global step from the server's model: its momentum then pulls towards what the
        server has just left.
        """
        if self.training == "alternate":
            return super().round(t, state, server, clients)
        S_t = self.cohort(clients, t)
        model = Snapshot(state.weights, self.refresh(state.weights, server, clients, S_t))
        fitted = self.server_fit(t, state.weights, server, state.server_memory)
        W_s = fitted.weights
        W_u = self.aggregate(clients.each(S_t, model, t), self.sent_weights(model))
        mean = self.joined(W_s, W_u, S_t)
        start = W_s if self.step_from == "server" else state.weights
        W, past = self.server_optimizer.step(start, mean, state.past)
        return RoundResult(State(W, past, self.server_kept(fitted), {}), model)

    def joined(self, W_s: Weights, W_u: Weights | None, S_t: Cohort) -> Weights:
        """The server's model and the clients' mean as one: half each."""
        return with_server(W_s, W_u)

    def client_update(self, client: Client, model: Snapshot, t: Round) -> Update | None:
        """Without labels from the global model there is nothing to abstain for."""
        if self.labeling == "global":
            return super().client_update(client, model, t)
        beliefs = Beliefs(len(client.images))
        loss = partial(self.batch_loss, beliefs=beliefs)
        fitted = self.client_fit(client, model, t, self.client_batches(client), loss)
        beliefs.tell(client, self.threshold)
        return self.update(model, fitted, len(client.images))

    def batch_loss(self, network: Network, batch: UnlabeledBatch, beliefs: Beliefs) -> dict[str, Tensor]:
        """SemiFL's two terms with labels from the network as it is at this step.

        Only confident pictures go through the network again, so the statistics of BatchNorm are theirs alone.
        """
        weak_view, strong_view = batch.views
        pseudo = said_of(network, weak_view)
        beliefs.note(batch.positions, pseudo)
        y, sure = pseudo.labels, sure_places(pseudo, self.threshold)
        if len(sure) == 0:
            return {}
        L_fix = sure_loss(network, strong_view, pseudo, sure)
        if not self.mix_weight:
            return {"loss": L_fix}
        partner = torch.randperm(len(y), device=y.device)
        λ = torch.distributions.Beta(self.mix_beta, self.mix_beta).sample().to(y.device)
        output = network(mix(weak_view, weak_view[partner], λ)[sure])
        to_fix, to_partner = F.cross_entropy(output, y[sure]), F.cross_entropy(output, y[partner][sure])
        L_mix = λ * to_fix + (1 - λ) * to_partner
        return {"loss": L_fix + self.mix_weight * L_mix, "fix": L_fix, "mix": L_mix}

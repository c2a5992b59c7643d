"""HeteroFL (Diao, Ding & Tarokh, ICLR 2021): labeled clients train sub-networks of the widths they can afford.

`docs/methods/heterofl.md` lists the differences from the paper and from its released program.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from semifl.data.epochs import LabeledBatch, labeled_epochs
from semifl.federation.recipe import Averaging, State
from semifl.federation.world import ClientId, Cohort, Federation, LabeledClient, Round, RoundResult, Server, Update
from semifl.learning.aggregation import Mean
from semifl.learning.network import Network
from semifl.learning.subnetwork import average_over_holders, cut, narrow_shapes, output_layer
from semifl.learning.training import Fit
from semifl.learning.weights import Snapshot, Weights, changed, moved
from semifl.randomness import Seed

CLASSES = "classes"  # which classes a client has, beside the change of its weights


class Part(NamedTuple):
    """What a client is sent: a sub-network and its share of the channels."""

    width: float
    weights: Weights


@dataclass(frozen=True)
class HeteroFL(Averaging):
    """The whole model is tested, by BatchNorm statistics of the server's pictures."""

    needs: ClassVar[frozenset[str]] = frozenset({"client_labels"})

    widths: tuple[float, ...] = (1.0, 0.5, 0.25, 0.125, 0.0625)  # computation levels a to e, equally frequent
    assignment: Literal["fix", "dynamic"] = "dynamic"  # a client's width for the whole run, or drawn in every round
    masked_loss: bool = True  # a client neither trains nor returns the outputs of classes it does not have

    def __post_init__(self) -> None:
        super().__post_init__()
        if 1 not in self.widths or not all(0 < width <= 1 for width in self.widths):
            raise ValueError(
                f"widths must lie above 0 and up to 1, and 1 must be among them, not {list(self.widths)}: "
                "else a part of the model would never be trained"
            )
        if self.aggregation != Mean():
            raise ValueError('aggregation.name must be "mean" in heterofl: each entry has its own holders')
        if self.class_weights and self.masked_loss:
            raise ValueError("class_weights must be false with masked_loss: a client's missing classes have no weight")

    def round(self, t: Round, state: State, server: Server, clients: Federation) -> RoundResult:
        W = state.weights
        S_t = self.cohort(clients, t)
        model = Snapshot(W, self.refresh(W, server, clients, S_t))
        mean = self.gather(W, clients, self.assign(S_t, len(clients), t), t)
        return RoundResult(State(*self.server_optimizer.step(W, mean, state.past)), model)

    def assign(self, S_t: Cohort, M: int, t: Round) -> dict[ClientId, float]:
        """The width of each client of the cohort."""
        number = len(self.widths)
        if self.assignment == "fix":
            turn = torch.randperm(M, generator=Seed(t.seed.value).at("widths"))  # dealt out evenly, once for the run
            return {m: self.widths[int(turn[m]) % number] for m in S_t}
        return {m: self.widths[int(torch.randint(number, (), generator=t.seed.at("width", m)))] for m in S_t}

    def gather(self, W: Weights, clients: Federation, width: dict[ClientId, float], t: Round) -> Weights | None:
        """Each entry's mean over the clients that hold it; None if nobody trained."""
        narrow = {r: narrow_shapes(W, r) for r in set(width.values())}
        parts = {r: Part(r, cut(W, sizes)) for r, sizes in narrow.items()}  # one for all clients of a width
        replies = clients.each(tuple(width), (), t, own=lambda m: parts[width[m]])
        changes = (dict(reply.update.change) for reply in replies if reply.update)
        return moved(W, average_over_holders(((change, change.pop(CLASSES, None)) for change in changes), W))

    def sent_model(self, message: tuple[tuple[()], Part]) -> None:
        return None

    def sent_weights(self, message: tuple[tuple[()], Part]) -> Weights:
        """The sub-network; and, where its classes count, a client that is not known to have any."""
        W = message[1].weights
        return W | ({CLASSES: torch.zeros(len(W[output_layer(W)[0]]))} if self.masked_loss else {})

    # ClientUpdate

    def client_update(self, client: LabeledClient, message: tuple[tuple[()], Part], t: Round) -> Update | None:
        part = message[1]
        n = len(client.labels)
        if n == 0:
            return None
        held = torch.bincount(client.labels, minlength=client.facts.classes) > 0
        epochs = labeled_epochs(
            client.images, client.labels, client.facts, self.client_batch, self.client_epochs, client.seed
        )
        loss = self.labeled_loss(client.labels, client.facts.classes)
        if self.masked_loss:
            loss = partial(masked_loss, held=held)
        fitted = client.fit(
            Fit(part.weights, epochs, loss, self.client_sgd(t), client.seed.under("fit"), width=part.width)
        )
        trained = fitted.weights | ({CLASSES: held.float()} if self.masked_loss else {})
        return Update(changed(trained, self.sent_weights(message)), n, fitted.terms, {})


def masked_loss(network: Network, batch: LabeledBatch, held: Tensor) -> dict[str, Tensor]:
    """Cross-entropy with a logit of 0 for every class that the client does not have."""
    logits = network(batch.images)
    return {"loss": F.cross_entropy(logits.masked_fill(~held.to(logits.device), 0), batch.labels)}

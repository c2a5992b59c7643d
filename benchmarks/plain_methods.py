"""Methods with nothing in them but what is measured; in a file of their own, because worker processes import them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from semifl.data.augment import normalize
from semifl.federation.world import Client, Federation, Round, RoundResult, Server, Update
from semifl.learning.network import Network
from semifl.learning.training import SGD, Fit
from semifl.learning.weights import Snapshot, Weights, average, changed, moved, zeros_like

BATCH, LR, MOMENTUM = 10, 0.03, 0.9


class Labeled(NamedTuple):
    images: Tensor
    labels: Tensor


def fake_labels(count: int) -> Tensor:
    """A client has no labels; for the time that training takes any will do."""
    return torch.arange(count) % 10


@dataclass(frozen=True)
class PlainFedAvg:
    """Everyone trains one epoch, the server averages."""

    needs: ClassVar[frozenset[str]] = frozenset()

    def start(self, weights: Weights) -> Weights:
        return weights

    def round(self, t: Round, state: Weights, server: Server, clients: Federation) -> RoundResult:
        replies = clients.each(clients.everyone(), Snapshot(state, {}), t)
        change = average((reply.update.change, 1.0) for reply in replies if reply.update)
        return RoundResult(moved(state, change) or state, Snapshot(state, {}))

    def sent_weights(self, model: Snapshot) -> Weights:
        return model.weights

    def client_update(self, client: Client, model: Snapshot, t: Round) -> Update:
        fitted = client.fit(Fit(model.weights, batches(client), loss, SGD(LR, MOMENTUM, False, 0.0), client.seed))
        return Update(changed(fitted.weights, model.weights), len(client.images), {}, {})


@dataclass(frozen=True)
class Nothing(PlainFedAvg):
    """Clients send back what they got."""

    def client_update(self, client: Client, model: Snapshot, t: Round) -> Update:
        return Update(zeros_like(model.weights), len(client.images), {}, {})


def batches(client: Client) -> Iterator[Labeled]:
    views, labels = normalize(client.images, client.facts), fake_labels(len(client.images))
    for start in range(0, len(views), BATCH):
        yield Labeled(views[start : start + BATCH], labels[start : start + BATCH])


def loss(network: Network, batch: Labeled) -> dict[str, Tensor]:
    return {"loss": F.cross_entropy(network(batch.images), batch.labels)}

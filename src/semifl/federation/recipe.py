"""What federated methods have in common: who takes part, how a site trains, how the server steps.

A method inherits these fields and adds its own; `docs/methods/recipe.md` explains each.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain, islice
from typing import Any, ClassVar, Literal, NamedTuple, Self, cast

import torch.nn.functional as F
from torch import Tensor

from semifl.data.augment import Kind
from semifl.data.epochs import WEAK_STRONG, LabeledBatch, UnlabeledBatch, labeled_epochs, unlabeled_epochs
from semifl.federation.world import Client, Cohort, Federation, Preview, Round, Server, Work
from semifl.learning.aggregation import Aggregation
from semifl.learning.batchnorm import BatchNormStats, pool
from semifl.learning.network import Network
from semifl.learning.server_step import Past, Rule, ServerStep
from semifl.learning.training import SGD, Fit, Loss, cosine
from semifl.learning.weights import Snapshot, Weights

SHARES = ("activity_rate", "threshold", "momentum", "server_momentum", "server_beta2")  # between 0 and 1
COUNTS = ("client_epochs", "server_epochs", "client_batch", "server_batch")  # at least 1
POSITIVE = ("lr", "mix_beta", "server_lr", "server_epsilon")
NOT_NEGATIVE = ("weight_decay", "clip_norm", "proximal", "mix_weight")


@dataclass(frozen=True)
class Recipe:
    """Defaults are those of the SemiFL paper."""

    needs: ClassVar[frozenset[str]] = frozenset()

    activity_rate: float = 0.1  # C, share of the clients that take part in a round
    cohort_rounding: Literal["floor", "ceil"] = "floor"  # of C·M
    client_epochs: int = 5  # E at the clients
    server_epochs: int = 5  # E at the server
    client_batch: int = 10  # pictures per step at a client
    server_batch: int = 10  # pictures per step at the server
    lr: float = 0.03  # η, annealed by a cosine over the rounds
    momentum: float = 0.9  # of the local optimisers, server and clients
    nesterov: bool = True  # Nesterov's form of the local momentum
    weight_decay: float = 5e-4  # of all weights, at every local step
    clip_norm: float = 0.0  # largest gradient norm of a step; 0 does not clip
    proximal: float = 0.0  # FedProx's μ: how strongly a client is held to the model it was sent
    aggregation: Aggregation = "mean"  # the others resist a few bad clients and hold the whole cohort's models
    trim: float = 0.2  # share of the replies that "trimmed" drops at each end
    server_rule: Rule = "momentum"  # the global step: SGD with momentum, or FedOpt's adam, yogi, adagrad
    server_lr: float = 1.0  # of the global step
    server_momentum: float = 0.5  # of the global step over rounds; β₁ of the adaptive rules
    server_beta2: float = 0.99  # of adam and yogi
    server_epsilon: float = 1e-3  # of the adaptive rules: the larger, the less adaptive
    class_weights: bool = False  # let the labels of rare classes count for more, so that all classes weigh the same
    statistics: Literal["server", "cohort", "all"] = "server"  # whose pictures the BatchNorm statistics come from

    def __post_init__(self) -> None:
        own = {field.name for field in fields(self)}
        for name in (each for each in SHARES if each in own):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie between 0 and 1, not {getattr(self, name)}")
        for name in (each for each in COUNTS if each in own):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in (each for each in POSITIVE if each in own):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        for name in (each for each in NOT_NEGATIVE if each in own):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")
        if not 0 <= self.trim < 0.5:
            raise ValueError(f"trim must lie between 0 and 0.5, not {self.trim}")

    # What semifl asks of a method that has clients

    def sent_weights(self, message: Any) -> Weights:
        return cast(Snapshot, message).weights

    def sent_model(self, message: Any) -> Snapshot | None:
        return cast(Snapshot, message)

    def client_work(self, pictures: int) -> Work:
        return Work(self.client_epochs, self.client_epochs * math.ceil(pictures / self.client_batch))

    @property
    def wants_statistics(self) -> Literal["server", "cohort", "all"]:
        return self.statistics

    def preview(self) -> Preview:
        return Preview()

    def busiest(self) -> Self:
        return self

    def counted_work(self, steps: int, pictures: int) -> Work:
        """The work of a number of steps."""
        return Work(steps * min(self.client_batch, pictures) / max(pictures, 1), steps)

    def cohort_size(self, M: int) -> int:
        """⌊C·M⌋ or ⌈C·M⌉ but at least 1; the small shift undoes the rounding of products such as 0.29 × 100."""
        exact = self.activity_rate * M
        size = math.ceil(exact - 1e-9) if self.cohort_rounding == "ceil" else math.floor(exact + 1e-9)
        return min(max(size, 1), M)

    def cohort(self, clients: Federation, t: Round) -> Cohort:
        """S_t."""
        return clients.sample(self.cohort_size(len(clients)), t.rng)

    def refresh(self, W: Weights, server: Server, clients: Federation, S_t: Cohort) -> BatchNormStats:
        """Update the sBN statistics: of the server's data, or pooled with those of the cohort or of all clients."""
        asked: Cohort = ()
        if self.statistics != "server":
            asked = S_t if self.statistics == "cohort" else clients.everyone()
        return pool(chain([server.statistics(W)], clients.statistics(W, asked)))

    def server_sgd(self, t: Round) -> SGD:
        return SGD(cosine(self.lr, t.progress), self.momentum, self.nesterov, self.weight_decay, self.clip_norm)

    def client_sgd(self, t: Round) -> SGD:
        lr = cosine(self.lr, t.progress)
        return SGD(lr, self.momentum, self.nesterov, self.weight_decay, self.clip_norm, self.proximal)

    @property
    def server_step(self) -> ServerStep:
        return ServerStep(
            self.server_rule, self.server_lr, self.server_momentum, self.server_beta2, self.server_epsilon
        )

    def server_batches(self, server: Server, epochs: int | None = None) -> Iterator[LabeledBatch]:
        epochs = epochs or self.server_epochs
        return labeled_epochs(server.images, server.labels, server.facts, self.server_batch, epochs, server.seed)

    def server_fit(self, t: Round, W: Weights, server: Server, steps: int = 0) -> Weights:
        """The server's labels for its epochs, or for a number of `steps`."""
        batches = islice(self.server_batches(server, steps), steps or None)  # an epoch has a batch at least
        loss = self.labeled_loss(server.labels, server.facts.classes)
        return server.fit(Fit(W, batches, loss, self.server_sgd(t), server.seed.under("fit"))).weights

    def labeled_loss(self, labels: Tensor, classes: int) -> Loss:
        """The loss of a site with these labels."""
        if not self.class_weights:
            return supervised_loss
        return partial(supervised_loss, weights=balancing_weights(labels, classes))

    def client_batches(self, client: Client, kind: Kind, steps: int = 0) -> Iterator[UnlabeledBatch]:
        """Weak and strong views for methods that label batch by batch: of all epochs, or for a number of `steps`."""
        epochs = steps or self.client_epochs
        batches = unlabeled_epochs(
            client.images, WEAK_STRONG, client.facts, self.client_batch, epochs, client.seed, kind
        )
        return islice(batches, steps or None)


class State(NamedTuple):
    """Of a method that averages: the model, and what its steps remember."""

    weights: Weights
    past: Past


@dataclass(frozen=True)
class Averaging(Recipe):
    """A method whose round ends with a step towards an average of models, and has nothing else to remember."""

    def start(self, weights: Weights) -> State:
        return State(weights, self.server_step.start(weights))

    def finish(self, t: Round, state: State, server: Server, clients: Federation) -> Snapshot:
        return Snapshot(state.weights, self.refresh(state.weights, server, clients, self.cohort(clients, t)))

    def weights(self, state: State) -> Weights:
        return state.weights


def supervised_loss(network: Network, batch: LabeledBatch, weights: Tensor | None = None) -> dict[str, Tensor]:
    """L_s, cross-entropy of weak views."""
    if weights is not None:
        weights = weights.to(network.device)
    return {"loss": F.cross_entropy(network(batch.images), batch.labels, weights)}


def balancing_weights(labels: Tensor, classes: int) -> Tensor:
    """One weight per class, n / (classes present × its labels): on average 1, and all classes weigh the same."""
    counts = labels.bincount(minlength=classes)
    present = (counts > 0).sum()
    return (len(labels) / (present * counts.clamp(min=1))).where(counts > 0, 0.0).float()

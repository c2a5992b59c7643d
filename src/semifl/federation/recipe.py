"""What federated methods have in common: who takes part, how a site trains, how the server steps.

A method inherits these fields and adds its own; `docs/methods/recipe.md` explains each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Any, ClassVar, Literal, NamedTuple, Self, cast

import torch.nn.functional as F
from torch import Tensor

from semifl.data.augment import Kind
from semifl.data.epochs import WEAK_STRONG, LabeledBatch, UnlabeledBatch, labeled_epochs, unlabeled_epochs
from semifl.federation.world import Client, Cohort, Federation, Preview, Reply, Round, Server, Update, Work
from semifl.fields import Checked, Count, NotNegative, Positive, Share, Whole
from semifl.learning import local_norm
from semifl.learning.aggregation import Aggregation, Mean
from semifl.learning.batchnorm import BatchNormStats, pool
from semifl.learning.network import Network
from semifl.learning.server_optimizer import Momentum, Past, ServerOptimizer
from semifl.learning.training import SGD, AdamW, BeforeStep, Fit, Fitted, Loss, Memory, cosine
from semifl.learning.weights import Snapshot, Weights, changed, moved


@dataclass(frozen=True)
class Recipe(Checked):
    """Defaults are those of the SemiFL paper."""

    needs: ClassVar[frozenset[str]] = frozenset()

    activity_rate: Share = 0.1  # C, share of the clients that take part in a round
    cohort_rounding: Literal["floor", "ceil"] = "floor"  # of C·M
    client_epochs: Count = 5  # E at the clients
    client_batch: Count = 10  # pictures per step at a client
    lr: Positive = 0.03  # Learning rate η at the server and at the clients.
    lr_schedule: Literal["cosine", "constant"] = "cosine"  # How the learning rate changes over the rounds.
    momentum: Share = 0.9  # of the local optimisers, server and clients
    nesterov: bool = True  # Nesterov's form of the local momentum
    optimizer: Literal["sgd", "adamw"] = "sgd"  # of server and clients; momentum is adamw's β₁, and its β₂ is 0.999
    backbone_lr: Positive = 1.0  # times lr: the learning rate of all but the last layer
    warmup_rounds: Whole = 0  # Number of first rounds over which the learning rate rises linearly to its schedule.
    weight_decay: NotNegative = 5e-4  # of all weights, at every local step
    clip_norm: NotNegative = 0.0  # largest gradient norm of a step; 0 does not clip
    proximal: NotNegative = 0.0  # FedProx's μ: how strongly a client is held to the model it was sent
    class_weights: bool = False  # let the labels of rare classes count for more, so that all classes weigh the same
    statistics: Literal["server", "cohort", "all"] = "server"  # whose pictures the BatchNorm statistics come from
    aggregation: Aggregation = Mean()  # the others resist a few bad clients and hold the whole cohort's changes
    server_optimizer: ServerOptimizer = Momentum()  # the global step: SGD with momentum, or FedOpt's adaptive rules

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

    def plain_server(self) -> Recipe | None:
        return None

    # What a round is made of

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
        own = server.statistics(W)
        return pool(chain([own], clients.statistics(W, asked, own)))

    def aggregate(self, replies: Iterable[Reply], start: Weights) -> Weights | None:
        """`start` after the change that the clients make together; None if nobody trained."""
        return moved(start, self.aggregation(reply.update.change for reply in replies if reply.update))

    def local_sgd(self, t: Round) -> SGD:
        lr = cosine(self.lr, t.progress) if self.lr_schedule == "cosine" else self.lr
        kind = AdamW if self.optimizer == "adamw" else SGD
        if t.index < self.warmup_rounds:
            lr *= t.index / self.warmup_rounds
        nesterov, backbone = self.nesterov, self.backbone_lr
        return kind(lr, self.momentum, nesterov, self.weight_decay, self.clip_norm, backbone_lr=backbone)

    def client_sgd(self, t: Round) -> SGD:
        return replace(self.local_sgd(t), proximal=self.proximal)

    def labeled_loss(self, labels: Tensor, classes: int) -> Loss:
        """The loss of a site with these labels."""
        if not self.class_weights:
            return supervised_loss
        return partial(supervised_loss, weights=balancing_weights(labels, classes))


@dataclass(frozen=True)
class LabeledServer(Recipe):
    """A method whose server trains on labels."""

    server_epochs: Count = 5  # E at the server
    server_batch: Count = 10  # pictures per step at the server
    strong_view: Kind = "fixmatch"  # FixMatch's own, or the released SemiFL program's

    @property
    def before_server_step(self) -> BeforeStep | None:
        """What is done to the server's gradient before each step."""
        return None

    def server_fit(self, t: Round, W: Weights, server: Server, memory: Memory | None = None, steps: int = 0) -> Fitted:
        """Train on the server's labels for its epochs, or for a number of `steps`."""
        batches = islice(self.server_batches(server, steps or self.server_epochs), steps or None)
        loss = self.labeled_loss(server.labels, server.facts.classes)
        seed, before_step = server.seed.under("fit"), self.before_server_step
        return server.fit(Fit(W, batches, loss, self.local_sgd(t), seed, memory, before_step))

    def server_batches(self, server: Server, epochs: int) -> Iterator[LabeledBatch]:
        """An epoch has one batch at least."""
        return labeled_epochs(server.images, server.labels, server.facts, self.server_batch, epochs, server.seed)


@dataclass(frozen=True)
class SemiSupervised(LabeledServer):
    """A method whose clients believe the pseudo-labels that they are confident of."""

    threshold: Share = 0.95  # τ, from which a pseudo-label is confident: 0 keeps everything, 1 keeps nothing

    def preview(self) -> Preview:
        return Preview(self.strong_view, None, self.threshold)

    def busiest(self) -> Self:
        return replace(self, threshold=0.0)

    def client_batches(self, client: Client, steps: int = 0) -> Iterator[UnlabeledBatch]:
        """Weak and strong views for methods that label batch by batch: of all epochs, or for a number of `steps`."""
        epochs = steps or self.client_epochs
        batches = unlabeled_epochs(
            client.images, WEAK_STRONG, client.facts, self.client_batch, epochs, client.seed, self.strong_view
        )
        return islice(batches, steps or None)

    def stepped_work(self, steps: int, pictures: int) -> Work:
        """The work of a number of steps, or of the epochs if there is none."""
        if not steps:
            return super().client_work(pictures)
        return Work(steps * min(self.client_batch, pictures) / max(pictures, 1), steps)


class State(NamedTuple):
    """Of a method that averages: the model, and what its steps remember."""

    weights: Weights
    past: Past


@dataclass(frozen=True)
class Averaging(Recipe):
    """A method whose round ends with a step towards an average of models, and has nothing else to remember."""

    def start(self, weights: Weights) -> State:
        return State(weights, self.server_optimizer.start(weights))

    def finish(self, t: Round, state: State, server: Server, clients: Federation) -> Snapshot:
        return Snapshot(state.weights, self.refresh(state.weights, server, clients, self.cohort(clients, t)))

    def weights(self, state: State) -> Weights:
        return state.weights


@dataclass(frozen=True)
class LocalNorm(Recipe):
    """A method whose clients may keep the scale and shift of their BatchNorm layers (FedBN)."""

    local_norm: bool = False  # FedBN: BatchNorm's scale and shift stay with each client

    @property
    def keeps_momentum(self) -> bool:
        """Whether clients keep their momentum between their rounds."""
        return False

    def sent_weights(self, message: Any) -> Weights:
        return self.shared_weights(cast(Snapshot, message))

    def shared_weights(self, model: Snapshot) -> Weights:
        """Return the part of a model that travels: all, or all but the norms that stay with each client."""
        return local_norm.shared(model.weights, model.stats) if self.local_norm else model.weights

    @property
    def before_client_step(self) -> BeforeStep | None:
        """What is done to a client's gradient before each step."""
        return None

    def client_fit(self, client: Client, model: Snapshot, t: Round, batches: Iterator[Any], loss: Loss) -> Fitted:
        """Train a client on `batches`, from its own norms and momentum where it keeps them."""
        memory = client.memory if self.keeps_momentum else None
        start = local_norm.restored(model.weights, client.memory) if self.local_norm else model.weights
        seed, before_step = client.seed.under("fit"), self.before_client_step
        return client.fit(Fit(start, batches, loss, self.client_sgd(t), seed, memory, before_step))

    def update(self, model: Snapshot, fitted: Fitted, examples: int) -> Update:
        """Return what a client gives, with what it keeps: its norms and its momentum, where it keeps them.

        `model` is the one that was sent. A method whose message holds more than a model overrides `sent_weights`, so
        that is not called here.
        """
        memory = fitted.memory if self.keeps_momentum else {}
        if self.local_norm:
            memory = memory | local_norm.kept(fitted.weights, model.stats)
        return Update(changed(fitted.weights, self.shared_weights(model)), examples, fitted.terms, memory)


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

"""(FL)² (Lee et al., NeurIPS 2024): SemiFL's rounds with thresholds that follow each client's confidence, and
sharpness-aware consistency on the labels that are sure.

Letters: W weights, S_t cohort, p outputs of the model that was sent, t mean confidence of a client, p̄ its mean output,
τ_c threshold of class c, 𝒜(·) strong view, ε the step up to where the loss is worst.
`docs/methods/fl2.md` lists every difference from the paper and from its released program.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from semifl.data.augment import normalize, strong, weak
from semifl.data.batches import shuffled, stretches
from semifl.federation.recipe import Averaging, SemiSupervised, State
from semifl.federation.world import Client, Federation, Reply, Round, RoundResult, Server, Update
from semifl.fields import Count, NotNegative, Positive, Whole
from semifl.learning.aggregation import Mean
from semifl.learning.network import Network
from semifl.learning.targets import pseudo_labels
from semifl.learning.training import Fit
from semifl.learning.weights import Snapshot, Weights, average, changed, moved


class Batch(NamedTuple):
    strong: Tensor  # 𝒜(x)
    labels: Tensor
    sure: Tensor  # places of those in the batch: how many there are is known without asking a device


@dataclass(frozen=True)
class FL2(SemiSupervised, Averaging):
    """`threshold` is that of the sure labels; those that take part at all have one of their class."""

    client_batch: Count = 32  # pictures per step at a client
    clip_norm: NotNegative = 1.0  # largest gradient norm of a step; 0 does not clip
    lr_schedule: Literal["cosine", "constant"] = "constant"  # How the learning rate changes over the rounds.
    statistics: Literal["server", "cohort", "all"] = "all"  # whose pictures the BatchNorm statistics come from
    warmup_steps: Whole = 2048  # Server steps before the first clients train, in whole calls of server_epochs.
    sharpness: NotNegative = 0.1  # ρ, how far the step up goes; 0 leaves the consistency term out
    sharpness_floor: Positive = 0.01  # η of adaptive SAM: what is added to |w|

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.aggregation != Mean():
            raise ValueError('aggregation.name must be "mean" in fl2: clients count by their doubt')

    def round(self, t: Round, state: State, server: Server, clients: Federation) -> RoundResult:
        S_t = self.cohort(clients, t)
        tuned = self.with_warmup(len(server.labels)) if t.index == 1 else self
        W = tuned.server_fit(t, state.weights, server).weights
        model = Snapshot(W, self.refresh(W, server, clients, S_t))
        mean = self.weighted_mean(clients.each(S_t, model, t), W, clients.max_share)
        return RoundResult(State(*self.server_optimizer.step(W, mean, state.past)), model)

    def with_warmup(self, labels: int) -> Self:
        """Return the method of the first round, whose server repeats its call until the warm-up is used up.

        The first round's own call is among them, as in the authors' program for SVHN.
        """
        call = self.server_epochs * math.ceil(labels / self.server_batch)  # steps
        return replace(self, server_epochs=self.server_epochs * max(self.warmup_steps // call, 1))

    def weighted_mean(self, replies: Iterable[Reply], W: Weights, max_share: float = 1.0) -> Weights | None:
        """Average the updates with weights proportional to 1 − t, the client's uncertainty."""
        updates = ((reply.update, reply.facts) for reply in replies if reply.update)
        return moved(W, average(((update.change, doubt(facts)) for update, facts in updates), max_share))

    def finish(self, t: Round, state: State, server: Server, clients: Federation) -> Snapshot:
        W = self.server_fit(t, state.weights, server).weights
        return Snapshot(W, self.refresh(W, server, clients, self.cohort(clients, t)))

    def busiest(self) -> Self:
        return self  # a threshold relative to the confidence keeps most pictures, whatever it is

    # ClientUpdate

    def client_update(self, client: Client, model: Snapshot, t: Round) -> Update | None:
        view = weak(client.images, client.facts, client.seed.at("label"))
        logits = client.outputs(model, view)  # once, with the model as it was sent
        pseudo = pseudo_labels(logits)
        kept = pseudo.confidence >= class_thresholds(logits.softmax(dim=1))[pseudo.labels]
        client.observe(pseudo, kept)
        D = kept.nonzero().flatten()
        if len(D) == 0:
            return None
        batches = self.strong_batches(client, D, pseudo.labels, pseudo.confident(self.threshold))
        fitted = client.fit(Fit(model.weights, batches, self.loss, self.client_sgd(t), client.seed.under("fit")))
        return Update(changed(fitted.weights, model.weights), len(D), fitted.terms, {})

    def strong_batches(self, client: Client, D: Tensor, y: Tensor, sure: Tensor) -> Iterator[Batch]:
        for e in range(self.client_epochs):
            seed = client.seed.under("epoch", e)
            order = shuffled(D, seed.at("order"))
            for stretch, cuts in stretches(len(order), self.client_batch, client.facts.size):
                part = order[stretch]
                seen = strong(client.images[part], client.facts, self.strong_view, seed.at(stretch.start, "strong"))
                views = normalize(seen, client.facts)
                yield from (Batch(views[cut], y[part[cut]], sure[part[cut]].nonzero().flatten()) for cut in cuts)

    def loss(self, network: Network, batch: Batch) -> dict[str, Tensor]:
        """Cross-entropy of all, and of the sure ones how much they change where the loss is worst."""
        z = network(batch.strong)
        L_fix = F.cross_entropy(z, batch.labels)
        if not self.sharpness or not len(batch.sure):
            return {"loss": L_fix, "fix": L_fix}
        L_sure = F.cross_entropy(z[batch.sure], batch.labels[batch.sure])
        ε = self.step_up(network, L_sure)
        before = z.detach()[batch.sure].log_softmax(dim=1)
        after = network.forward_at(ε, batch.strong)[batch.sure].log_softmax(dim=1)
        L_flat = F.kl_div(after, before, log_target=True, reduction="sum") / len(z)
        return {"loss": L_fix + L_flat, "fix": L_fix, "flat": L_flat}

    def step_up(self, network: Network, loss: Tensor) -> Weights:
        """Adaptive SAM: ε = ρ · T²g / ‖Tg‖, with T = |w| + η for weights and 1 for the rest."""
        scales = {
            name: each.detach().abs() + self.sharpness_floor
            for name, each in network.trained().items()
            if "weight" in name
        }
        scaled = {name: scales.get(name, 1.0) * g for name, g in network.gradients(loss).items()}
        length = torch.stack([g.norm() for g in scaled.values()]).norm() + 1e-12
        return {name: self.sharpness / length * scales.get(name, 1.0) * g for name, g in scaled.items()}


def class_thresholds(p: Tensor) -> Tensor:
    """τ_c = t · p̄_c / max p̄: the mean confidence, lower for classes that the model rarely names."""
    mean = p.mean(dim=0)
    return p.max(dim=1).values.mean() * mean / mean.max()


def doubt(facts: Mapping[str, Any]) -> float:
    """1 − t, from what the client tells of its confidence; 1 if it keeps that to itself.

    At least half a picture's worth: a site rounds both numbers, and a fairly sure one would not count at all.
    """
    told, images = facts.get("confidence"), facts.get("images")
    return max(1.0 - told / images, 0.5 / images) if told is not None and images else 1.0

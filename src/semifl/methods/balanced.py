"""SemiFL in balance: the server learns as clients do and as much; clients label by what they are made of.

Letters: W weights, S_t cohort, w weight of a pseudo-label, D the pictures to train on, π shares of the classes among
the server's labels as it learns from them, ν among all clients' predictions, λ_mix the Mixup weight.
`docs/methods/balanced.md` says what each part brings, and how that was measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from functools import partial
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from semifl.data.augment import weak
from semifl.data.epochs import LabeledBatch
from semifl.data.mixtures import MixedBatch, Mixing
from semifl.federation.recipe import LabeledServer, balancing_weights
from semifl.federation.world import Client, Federation, Participant, Preview, Reply, Round, RoundResult, Server, Update
from semifl.fields import Count, NotNegative, Positive, Whole
from semifl.learning.evaluation import blocks
from semifl.learning.network import Network
from semifl.learning.norm_correction import corrected, learned, measured, unchanged
from semifl.learning.server_optimizer import Past
from semifl.learning.targets import PseudoLabels, most_likely
from semifl.learning.training import Fit, Loss
from semifl.learning.weights import Snapshot, Weights, changed
from semifl.methods.semifl import SemiFL

KEPT = 0.8  # of what clients told before: about the last five rounds count
NEGLIGIBLE = 0.05  # a weight below which a picture costs more time than it teaches
EVENLY = 0.1  # of a participant's labels, added to all classes alike, so that no share is 0
PASSES = 3  # of a client over its labels, to find out of which classes it has more than others
AS_OTHERS = 10  # pictures that a client has as all clients have them, before it counts its own


class State(NamedTuple):
    weights: Weights
    past: Past
    correction: Weights  # of the server's BatchNorm statistics; empty before anybody told
    predicted: Tensor = torch.empty(0)  # ν; empty before anybody told


class Sent(NamedTuple):
    """What is sent to every client."""

    model: Snapshot
    π: Tensor
    ν: Tensor  # the labels', too, before anybody told


@dataclass(frozen=True)
class Balanced(LabeledServer):
    """Meant to be used as it is, with few labels or many, even clients or uneven ones."""

    clip_norm: NotNegative = 1.0  # largest gradient norm of a step; 0 does not clip
    statistics: Literal["server", "cohort", "all"] = "cohort"  # whose pictures the BatchNorm statistics come from
    server_steps: Count = 30  # of the server in a round at least
    warmup_steps: Whole = 150  # Additional server steps in the first round, before any client trains.
    mix_beta: Positive = 0.75  # a, of Beta(a, a)

    def start(self, weights: Weights) -> State:
        return State(weights, self.server_optimizer.start(weights), {})

    def round(self, t: Round, state: State, server: Server, clients: Federation) -> RoundResult:
        S_t = self.cohort(clients, t)
        W = self.server_update(server, state.weights, t)
        stats = self.refresh(W, server, clients, ())
        model = Snapshot(W, corrected(stats, state.correction))
        y = self.targets(server)  # what it learned from is what a client's shares are compared with
        sent = Sent(model, shares(y), state.predicted if len(state.predicted) else shares(y > 0))
        told: list[Tensor] = []
        change = self.aggregation(heard(clients.each(S_t, sent, t), told))
        mean = change and {name: W[name] + change[name] for name in W}
        step = self.server_optimizer.step(W, mean, state.past)
        ν = torch.lerp(sent.ν, shares(torch.stack(told)), 1 - KEPT) if told else state.predicted
        state = State(*step, self.correction_after(change, state, model), ν)
        return RoundResult(state, Snapshot(W, corrected(stats, state.correction)))

    def finish(self, t: Round, state: State, server: Server, clients: Federation) -> Snapshot:
        """One more server update."""
        W = self.server_update(server, state.weights, t)
        return Snapshot(W, corrected(self.refresh(W, server, clients, ()), state.correction))

    def targets(self, server: Server) -> Tensor:
        y = F.one_hot(server.labels, server.facts.classes).float()
        return y * balancing_weights(server.labels, server.facts.classes) if self.class_weights else y

    def server_update(self, server: Server, W: Weights, t: Round) -> Weights:
        steps = self.server_steps + (self.warmup_steps if t.index == 1 else 0)
        epochs = max(self.server_epochs, math.ceil(steps / len(blocks(len(server.labels), self.server_batch))))
        y = self.targets(server)
        plain = self.server_batches(server, epochs)
        batches = self.batches(server, y, torch.arange(len(y)), self.server_batch, epochs)
        loss = partial(self.server_loss, self.labeled_loss(server.labels, server.facts.classes))
        job = Fit(W, zip(plain, batches, strict=True), loss, self.local_sgd(t), server.seed.under("fit"))
        return server.fit(job).weights

    def server_loss(
        self, weak_loss: Loss, network: Network, batch: tuple[LabeledBatch, MixedBatch]
    ) -> dict[str, Tensor]:
        """Everybody's, and L_s, cross-entropy of weak views: these labels are right."""
        plain, mixed = batch
        L_weak, terms = weak_loss(network, plain)["loss"], self.loss(network, mixed)
        return terms | {"loss": L_weak + terms["loss"], "weak": L_weak}

    def client_update(self, client: Client, sent: Sent, t: Round) -> Update | None:
        if not len(client.images):
            return None
        model = sent.model
        view = weak(client.images, client.facts, client.seed.at("label"))
        p = client.outputs(model, view).softmax(dim=1)  # once, with the model as it was sent
        pseudo = self.labels(p, sent)
        w = self.weigh(pseudo.confidence)
        client.observe(pseudo, w >= 0.5, said=p.argmax(dim=1))
        D = (w >= NEGLIGIBLE).nonzero().flatten()
        y = w[:, None] * F.one_hot(pseudo.labels, client.facts.classes)
        batches = self.batches(client, y, D, self.client_batch, self.client_epochs)
        loss = partial(self.loss, offset=self.offset(y, sent))
        fitted = client.fit(Fit(model.weights, batches, loss, self.client_sgd(t), client.seed.under("fit")))
        after = dict(fitted.weights)
        if self.statistics == "cohort":
            after |= measured(client.statistics(model.weights), model.stats)
        return Update(changed(after, self.sent_weights(sent)), len(D), fitted.terms, {})

    def labels(self, p: Tensor, sent: Sent) -> PseudoLabels:
        return most_likely(at_home(p, sent.ν))

    def weigh(self, confidence: Tensor) -> Tensor:
        """w: 1 from the mean confidence on, below it by a bell curve as wide as they spread (as in SoftMatch)."""
        below = (confidence.mean() - confidence).clamp(min=0)
        return (-(below**2) / (2 * confidence.var(correction=0) + 1e-12)).exp()

    def offset(self, y: Tensor, sent: Sent) -> Tensor:
        return (shares(y) / sent.π).log()

    def batches(self, site: Participant, y: Tensor, D: Tensor, batch: int, epochs: int) -> Iterator[MixedBatch]:
        mixing = Mixing(self.strong_view, self.mix_beta, "epoch", "shared")
        return mixing.epochs(site.images, y, D, site.facts, batch, epochs, site.seed)

    def loss(self, network: Network, batch: MixedBatch, offset: Tensor | None = None) -> dict[str, Tensor]:
        """Everybody's: cross-entropy of strong views and of mixtures. A label of weight w is a target with that sum.

        A client's offset says how much more it has of each class than the server. So its logits need not learn that,
        and classes that it lacks are not unlearned (logit adjustment).
        """
        λ_mix, more = batch.mix_weight, 0.0 if offset is None else offset.to(network.device)
        L_strong = F.cross_entropy(network(batch.strong) + more, batch.fix_labels)
        mixed_labels = λ_mix * batch.fix_labels + (1 - λ_mix) * batch.mix_labels
        L_mix = F.cross_entropy(network(batch.mixed) + more, mixed_labels)
        return {"loss": L_strong + L_mix, "strong": L_strong, "mix": L_mix}

    def correction_after(self, change: Weights | None, state: State, model: Snapshot) -> Weights:
        """By what this round's clients measured: all of it at first, then slowly."""
        if change is None or self.statistics != "cohort":
            return state.correction
        rate = 1 - KEPT if state.correction else 1.0
        return learned(state.correction or unchanged(model.stats), change, rate)

    def weights(self, state: State) -> Weights:
        return state.weights

    def sent_model(self, sent: Sent) -> Snapshot:
        return sent.model

    def sent_weights(self, sent: Sent) -> Weights:
        weights, stats = sent.model
        return weights | unchanged(stats) if self.statistics == "cohort" else weights

    def preview(self) -> Preview:
        return Preview(self.strong_view, self.mix_beta)

    def plain_server(self) -> SemiFL:
        """Weak views for its epochs, and no warm-up: what more is made of the labels here is not the clients' gain."""
        return SemiFL(**{field.name: getattr(self, field.name) for field in fields(LabeledServer)})


def heard(replies: Iterable[Reply], told: list[Tensor]) -> Iterator[Weights]:
    """The clients' changes as they come; into `told` the shares of classes that the model sees there, if sites tell."""
    for reply in replies:
        counts = torch.tensor(reply.facts.get("said", ()), dtype=torch.float32)
        if counts.sum() > 0:
            told.append(counts / counts.sum())
        if reply.update:
            yield reply.update.change


def at_home(p: Tensor, ν: Tensor) -> Tensor:
    """p of a client's pictures, given how much more it has of each class than all clients together (EM, hard labels).

    Its own classes are those that it labels its pictures with. By them it labels anew, and so finds them better.
    """
    q = p
    for _ in range(PASSES):
        counts = q.argmax(dim=1).bincount(minlength=len(ν))
        q = p * (counts + AS_OTHERS * ν) / (len(p) + AS_OTHERS) / ν
    return q / q.sum(dim=1, keepdim=True)


def shares(y: Tensor) -> Tensor:
    """π: of the classes among weighed labels, a little evened out."""
    counts = y.float().sum(dim=0)
    return (counts / counts.sum() + EVENLY / len(counts)) / (1 + EVENLY)

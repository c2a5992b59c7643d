"""SemiFL (Diao, Ding & Tarokh, NeurIPS 2022): alternate training of a labeled server and unlabeled clients.

Letters as in the paper's Algorithm 1: W weights, S_t cohort, τ threshold, E epochs, α(·) weak and 𝒜(·) strong view,
D_fix confident pictures, D_mix their Mixup partners, λ_mix the Mixup weight, λ the weight of the Mixup loss.
`docs/methods/semifl.md` lists every difference from the paper and from the released program.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from semifl.data.augment import apply_weak, beta_weights, draw_weak, mix, normalize, strong, weak
from semifl.data.batches import shuffled, stretches, with_replacement
from semifl.federation.world import Client, Cohort, Federation, Round, Server, Update
from semifl.learning.aggregation import Aggregation, aggregate
from semifl.learning.batchnorm import BatchNormStats, pool
from semifl.learning.network import Network
from semifl.learning.training import SGD, Fit, Memory, cosine
from semifl.learning.weights import Snapshot, Weights, momentum_step, shapes, zeros_like
from semifl.randomness import Seed


class State(NamedTuple):
    weights: Weights  # W
    velocity: Weights  # of the global momentum
    server_memory: Memory  # the server's momentum buffer, if it is kept
    stats: BatchNormStats  # sBN of `weights`, where the order of the round has them at its end


class ServerBatch(NamedTuple):
    images: Tensor
    labels: Tensor


class ClientBatch(NamedTuple):
    strong: Tensor  # 𝒜(x_fix)
    mixed: Tensor  # α(x_mix)
    fix_labels: Tensor
    mix_labels: Tensor
    mix_weight: Tensor  # λ_mix, one per batch


@dataclass(frozen=True)
class SemiFL:
    """Algorithm 1. Defaults are the paper's text and table; options exist where the released program differs."""

    needs: ClassVar[frozenset[str]] = frozenset()

    activity_rate: float = 0.1  # C, share of the clients that take part in a round
    client_epochs: int = 5  # E at the clients
    server_epochs: int = 5  # E at the server
    client_batch: int = 10
    server_batch: int = 10
    threshold: float = 0.95  # τ: 0 keeps everything, 1 keeps nothing
    lr: float = 0.03  # η, annealed by a cosine over the rounds
    momentum: float = 0.9  # of the local optimisers, server and clients
    nesterov: bool = True
    weight_decay: float = 5e-4
    clip_norm: float = 0.0  # largest gradient norm of a step; 0 does not clip
    server_momentum: float = 0.5  # of the global step over rounds
    mix_weight: float = 1.0  # λ, weight of the Mixup loss; 0 trains without it
    mix_beta: float = 0.75  # a, of Beta(a, a)
    mix_draw: Literal["round", "epoch"] = "round"  # when D_mix is drawn
    mix_pool: Literal["all", "confident"] = "all"  # where D_mix is drawn from
    mix_view: Literal["shared", "own"] = "shared"  # α of the mixture, or a mixture of two pictures with their own α
    strong_view: Literal["fixmatch", "reference"] = "fixmatch"
    statistics: Literal["server", "cohort", "all"] = "server"  # whose pictures the BatchNorm statistics come from
    client_buffers: Literal["fresh", "kept"] = "fresh"  # the clients' momentum between their rounds
    server_buffers: Literal["fresh", "kept"] = "fresh"
    order: Literal["paper", "reference"] = "paper"  # fine-tune before the clients of a round, or after them
    cohort_rounding: Literal["floor", "ceil"] = "floor"  # of C·M
    aggregation: Aggregation = "mean"  # the others resist a few bad clients and hold the whole cohort's models
    trim: float = 0.2  # share of the replies that "trimmed" drops at each end

    def __post_init__(self) -> None:
        for name in ("threshold", "activity_rate", "momentum", "server_momentum"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie between 0 and 1, not {getattr(self, name)}")
        if not 0 <= self.trim < 0.5:
            raise ValueError(f"trim must lie between 0 and 0.5, not {self.trim}")
        for name in ("client_epochs", "server_epochs", "client_batch", "server_batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in ("lr", "mix_beta"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        for name in ("weight_decay", "clip_norm", "mix_weight"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")

    def start(self, weights: Weights) -> State:
        return State(weights, zeros_like(weights), {}, {})

    def round(self, t: Round, state: State, server: Server, clients: Federation) -> State:
        S_t = clients.sample(self.cohort_size(len(clients)), t.rng)
        if self.order == "reference":
            return self.reference_round(t, state, server, clients, S_t)
        W, kept = self.server_update(t, state, server)
        model = Snapshot(W, self.refresh(W, server, clients, S_t))
        server.test(model)
        mean = self.gather(model, clients, S_t, t)
        W, velocity = momentum_step(W, mean, state.velocity, self.server_momentum)
        return State(W, velocity, kept, {})

    def reference_round(self, t: Round, state: State, server: Server, clients: Federation, S_t: Cohort) -> State:
        """The released program's order: clients first (on a random network in round 1), then the server."""
        model = Snapshot(state.weights, state.stats or self.refresh(state.weights, server, clients, S_t))
        mean = self.gather(model, clients, S_t, t)
        W, velocity = momentum_step(state.weights, mean, state.velocity, self.server_momentum)
        W, kept = self.server_update(t, state._replace(weights=W), server)
        stats = self.refresh(W, server, clients, S_t)
        server.test(Snapshot(W, stats))
        return State(W, velocity, kept, stats)

    def gather(self, model: Snapshot, clients: Federation, S_t: Cohort, t: Round) -> Weights | None:
        """The models of the clients that trained, as one; None if all abstained."""
        replies = clients.each(S_t, self.client_update, model, t, shapes(model.weights))
        payloads = (reply.update.payload for reply in replies if reply.update)
        return aggregate(self.aggregation, payloads, model.weights, self.trim)

    def finish(self, t: Round, state: State, server: Server, clients: Federation) -> Snapshot:
        """One more fine-tune and sBN refresh after the last round; the reference order has just done both."""
        S_t = clients.sample(self.cohort_size(len(clients)), t.rng)
        if self.order == "reference":
            return Snapshot(state.weights, state.stats or self.refresh(state.weights, server, clients, S_t))
        W, _ = self.server_update(t, state, server)
        return Snapshot(W, self.refresh(W, server, clients, S_t))

    def weights(self, state: State) -> Weights:
        return state.weights

    def cohort_size(self, M: int) -> int:
        """⌊C·M⌋ or ⌈C·M⌉ but at least 1; the small shift undoes the rounding of products such as 0.29 × 100."""
        exact = self.activity_rate * M
        size = math.ceil(exact - 1e-9) if self.cohort_rounding == "ceil" else math.floor(exact + 1e-9)
        return min(max(size, 1), M)

    def refresh(self, W: Weights, server: Server, clients: Federation, S_t: Cohort) -> BatchNormStats:
        """Update the sBN statistics: of the server's data, or pooled with those of the cohort or of all clients."""
        asked: Cohort = ()
        if self.statistics != "server":
            asked = S_t if self.statistics == "cohort" else clients.everyone()
        return pool(chain([server.statistics(W)], clients.statistics(W, asked)))

    def sgd(self, t: Round) -> SGD:
        lr = cosine(self.lr, t.progress)
        return SGD(lr, self.momentum, self.nesterov, self.weight_decay, self.clip_norm)

    # ServerUpdate

    def server_update(self, t: Round, state: State, server: Server) -> tuple[Weights, Memory]:
        seed = server.seed.under("fit")
        job = Fit(state.weights, self.server_batches(server), server_loss, self.sgd(t), seed, state.server_memory)
        fitted = server.fit(job)
        return fitted.weights, fitted.memory if self.server_buffers == "kept" else {}

    def server_batches(self, server: Server) -> Iterator[ServerBatch]:
        everything = torch.arange(len(server.labels))
        for e in range(self.server_epochs):
            seed = server.seed.under("epoch", e)
            order = shuffled(everything, seed.at("order"))
            for stretch, cuts in stretches(len(order), self.server_batch, server.facts.size):
                part = order[stretch]
                views = normalize(weak(server.images[part], server.facts, seed.at("weak", stretch.start)), server.facts)
                labels = server.labels[part]
                yield from (ServerBatch(views[cut], labels[cut]) for cut in cuts)

    # ClientUpdate

    def client_update(self, client: Client, model: Snapshot, t: Round) -> Update | None:
        view = weak(client.images, client.facts, client.seed.at("label"))
        pseudo = client.pseudo_labels(model, view)  # once, with the model as it was sent
        confident = pseudo.confident(self.threshold)
        client.observe(pseudo, confident)
        D_fix = confident.nonzero().flatten()
        if len(D_fix) == 0:
            return None
        pairs = self.client_batches(client, pseudo.labels, D_fix)
        memory = client.memory if self.client_buffers == "kept" else None
        fitted = client.fit(Fit(model.weights, pairs, self.client_loss, self.sgd(t), client.seed.under("fit"), memory))
        kept = fitted.memory if self.client_buffers == "kept" else {}
        return Update(fitted.weights, len(D_fix), fitted.facts, kept)

    def client_batches(self, client: Client, y: Tensor, D_fix: Tensor) -> Iterator[ClientBatch]:
        pool = torch.arange(len(y)) if self.mix_pool == "all" else D_fix
        D_mix = with_replacement(pool, len(D_fix), client.seed.at("mix"))
        for e in range(self.client_epochs):
            seed = client.seed.under("epoch", e)
            if self.mix_draw == "epoch":
                D_mix = with_replacement(pool, len(D_fix), seed.at("mix"))
            fix, partner = shuffled(D_fix, seed.at("fix order")), shuffled(D_mix, seed.at("mix order"))
            # Views are made for a long stretch of batches at once: batched tensor code is fastest on many pictures.
            for stretch, cuts in stretches(len(fix), self.client_batch, client.facts.size):
                yield from self.make_views(client, y, fix[stretch], partner[stretch], cuts, seed.under(stretch.start))

    def make_views(
        self, client: Client, y: Tensor, fix: Tensor, partner: Tensor, cuts: list[slice], seed: Seed
    ) -> Iterator[ClientBatch]:
        facts = client.facts
        strong_views = normalize(strong(client.images[fix], facts, self.strong_view, seed.at("strong")), facts)
        λ_mix = beta_weights(self.mix_beta, len(cuts), seed.numpy_at("lambda"))
        mixed = strong_views
        if self.mix_weight:
            per_picture = λ_mix.repeat_interleave(torch.tensor([cut.stop - cut.start for cut in cuts]))
            mixed = mix(*self.weak_pair(client, fix, partner, seed), per_picture)
        for cut, λ in zip(cuts, λ_mix, strict=True):
            yield ClientBatch(strong_views[cut], mixed[cut], y[fix[cut]], y[partner[cut]], λ)

    def weak_pair(self, client: Client, fix: Tensor, partner: Tensor, seed: Seed) -> tuple[Tensor, Tensor]:
        """α of both halves of each mixture: α(λ a + (1−λ) b) is the mixture of two views with one crop and flip."""
        facts = client.facts
        draws = partner_draws = draw_weak(len(fix), facts.size, facts.may_flip, seed.at("weak"))
        if self.mix_view == "own":
            partner_draws = draw_weak(len(fix), facts.size, facts.may_flip, seed.at("weak partner"))
        return (
            normalize(apply_weak(client.images[fix], draws), facts),
            normalize(apply_weak(client.images[partner], partner_draws), facts),
        )

    def client_loss(self, network: Network, batch: ClientBatch) -> dict[str, Tensor]:
        """L_fix + λ·L_mix; each view has its own forward pass, and so its own batch statistics."""
        output = network(batch.strong)
        L_fix = F.cross_entropy(output, batch.fix_labels)
        agreement = (output.detach().argmax(dim=1) == batch.fix_labels).float().mean()
        if not self.mix_weight:
            return {"loss": L_fix, "agreement": agreement}
        output = network(batch.mixed)
        to_fix, to_partner = F.cross_entropy(output, batch.fix_labels), F.cross_entropy(output, batch.mix_labels)
        L_mix = batch.mix_weight * to_fix + (1 - batch.mix_weight) * to_partner
        return {"loss": L_fix + self.mix_weight * L_mix, "fix": L_fix, "mix": L_mix, "agreement": agreement}


def server_loss(network: Network, batch: ServerBatch) -> dict[str, Tensor]:
    return {"loss": F.cross_entropy(network(batch.images), batch.labels)}

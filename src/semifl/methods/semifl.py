"""SemiFL (Diao, Ding & Tarokh, NeurIPS 2022): alternate training of a labeled server and unlabeled clients.

Letters as in the paper's Algorithm 1: W weights, S_t cohort, τ threshold, E epochs, α(·) weak and 𝒜(·) strong view,
D_fix confident pictures, D_mix their Mixup partners, λ_mix the Mixup weight, λ the weight of the Mixup loss.
`docs/methods/semifl.md` lists every difference from the paper and from the released program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from semifl.data.augment import apply_weak, beta_weights, draw_weak, mix, normalize, strong, weak
from semifl.data.batches import shuffled, stretches, with_replacement
from semifl.data.epochs import UnlabeledBatch
from semifl.federation.recipe import Recipe
from semifl.federation.world import Client, Cohort, Federation, Played, Preview, Round, Server, Update
from semifl.learning import local_norm
from semifl.learning.aggregation import aggregate, with_server
from semifl.learning.batchnorm import BatchNormStats
from semifl.learning.network import Network
from semifl.learning.server_step import Past
from semifl.learning.targets import Beliefs, pseudo_labels
from semifl.learning.training import Fit, Loss, Memory
from semifl.learning.weights import Snapshot, Weights, changed, moved
from semifl.randomness import Seed


class State(NamedTuple):
    weights: Weights  # W
    past: Past  # of the global step
    server_memory: Memory  # the server's momentum buffer, if it is kept
    stats: BatchNormStats  # sBN of `weights`, where the order of the round has them at its end


class ClientBatch(NamedTuple):
    strong: Tensor  # 𝒜(x_fix)
    mixed: Tensor  # α(x_mix)
    fix_labels: Tensor
    mix_labels: Tensor
    mix_weight: Tensor  # λ_mix, one per batch


@dataclass(frozen=True)
class SemiFL(Recipe):
    """Algorithm 1. Defaults are the paper's text and table; options exist where the released program differs."""

    threshold: float = 0.95  # τ: 0 keeps everything, 1 keeps nothing
    mix_weight: float = 1.0  # λ, weight of the Mixup loss; 0 trains without it
    mix_beta: float = 0.75  # a, of Beta(a, a)
    mix_draw: Literal["round", "epoch"] = "round"  # when D_mix is drawn
    mix_pool: Literal["all", "confident"] = "all"  # where D_mix is drawn from
    mix_view: Literal["shared", "own"] = "shared"  # α of the mixture, or a mixture of two pictures with their own α
    strong_view: Literal["fixmatch", "reference"] = "fixmatch"  # FixMatch's own, or the released SemiFL program's
    client_buffers: Literal["fresh", "kept"] = "fresh"  # the clients' momentum between their rounds
    server_buffers: Literal["fresh", "kept"] = "fresh"  # the server's momentum between rounds
    local_norm: bool = False  # FedBN: BatchNorm's scale and shift stay with each client
    order: Literal["paper", "reference"] = "paper"  # fine-tune before the clients of a round, or after them
    training: Literal["alternate", "parallel"] = "alternate"  # ablation: server and clients from the same weights
    step_from: Literal["sent", "server"] = "sent"  # where the global step of parallel training starts
    labeling: Literal["global", "batch"] = "global"  # ablation: label each batch with the network in training

    def start(self, weights: Weights) -> State:
        return State(weights, self.server_step.start(weights), {}, {})

    def round(self, t: Round, state: State, server: Server, clients: Federation) -> Played:
        S_t = self.cohort(clients, t)
        if self.training == "parallel":
            return self.parallel_round(t, state, server, clients, S_t)
        if self.order == "reference":
            return self.reference_round(t, state, server, clients, S_t)
        W, kept = self.server_update(t, state, server)
        model = Snapshot(W, self.refresh(W, server, clients, S_t))
        mean = self.gather(model, clients, S_t, t)
        W, past = self.server_step.take(W, mean, state.past)
        return Played(State(W, past, kept, {}), model)

    def reference_round(self, t: Round, state: State, server: Server, clients: Federation, S_t: Cohort) -> Played:
        """The released program's order: clients first (on a random network in round 1), then the server."""
        model = Snapshot(state.weights, state.stats or self.refresh(state.weights, server, clients, S_t))
        mean = self.gather(model, clients, S_t, t)
        W, past = self.server_step.take(state.weights, mean, state.past)
        W, kept = self.server_update(t, state._replace(weights=W), server)
        stats = self.refresh(W, server, clients, S_t)
        return Played(State(W, past, kept, stats), Snapshot(W, stats))

    def parallel_round(self, t: Round, state: State, server: Server, clients: Federation, S_t: Cohort) -> Played:
        """Without fine-tuning: the server trains beside the clients, and half of the new model is its own.

        The released program starts the global step from the server's model: its momentum then pulls towards what the
        server has just left.
        """
        model = Snapshot(state.weights, self.refresh(state.weights, server, clients, S_t))
        W_s, kept = self.server_update(t, state, server)
        mean = with_server(W_s, self.gather(model, clients, S_t, t))
        W, past = self.server_step.take(W_s if self.step_from == "server" else state.weights, mean, state.past)
        return Played(State(W, past, kept, {}), model)

    def gather(self, model: Snapshot, clients: Federation, S_t: Cohort, t: Round) -> Weights | None:
        """The model after the change that the clients make together; None if all abstained."""
        replies = clients.each(S_t, model, t)
        changes = (reply.update.change for reply in replies if reply.update)
        return moved(model.weights, aggregate(self.aggregation, changes, self.trim))

    def sent_weights(self, model: Snapshot) -> Weights:
        return local_norm.shared(model.weights, model.stats) if self.local_norm else model.weights

    def finish(self, t: Round, state: State, server: Server, clients: Federation) -> Snapshot:
        """One more fine-tune and sBN refresh after the last round; the reference order has just done both.

        Without fine-tuning the average is the model.
        """
        S_t = self.cohort(clients, t)
        if self.order == "reference" or self.training == "parallel":
            return Snapshot(state.weights, state.stats or self.refresh(state.weights, server, clients, S_t))
        W, _ = self.server_update(t, state, server)
        return Snapshot(W, self.refresh(W, server, clients, S_t))

    def weights(self, state: State) -> Weights:
        return state.weights

    def preview(self) -> Preview:
        return Preview(self.strong_view, self.mix_beta if self.mix_weight else None, self.threshold)

    def busiest(self) -> Self:
        return replace(self, threshold=0.0)

    # ServerUpdate

    def server_update(self, t: Round, state: State, server: Server) -> tuple[Weights, Memory]:
        batches, seed = self.server_batches(server), server.seed.under("fit")
        loss = self.labeled_loss(server.labels, server.facts.classes)
        job = Fit(state.weights, batches, loss, self.server_sgd(t), seed, state.server_memory)
        fitted = server.fit(job)
        return fitted.weights, fitted.memory if self.server_buffers == "kept" else {}

    # ClientUpdate

    def client_update(self, client: Client, model: Snapshot, t: Round) -> Update | None:
        if self.labeling == "batch":
            return self.unsure_update(client, model, t)
        view = weak(client.images, client.facts, client.seed.at("label"))
        pseudo = client.pseudo_labels(model, view)  # once, with the model as it was sent
        confident = pseudo.confident(self.threshold)
        client.observe(pseudo, confident)
        D_fix = confident.nonzero().flatten()
        if len(D_fix) == 0:
            return None
        return self.client_fit(
            client, model, t, self.confident_batches(client, pseudo.labels, D_fix), self.client_loss, len(D_fix)
        )

    def client_fit(
        self, client: Client, model: Snapshot, t: Round, batches: Iterator[Any], loss: Loss, examples: int
    ) -> Update:
        start = local_norm.restored(model.weights, client.memory) if self.local_norm else model.weights
        memory = client.memory if self.client_buffers == "kept" else None
        fitted = client.fit(Fit(start, batches, loss, self.client_sgd(t), client.seed.under("fit"), memory))
        kept = fitted.memory if self.client_buffers == "kept" else {}
        if self.local_norm:
            kept = kept | local_norm.kept(fitted.weights, model.stats)
        return Update(changed(fitted.weights, self.sent_weights(model)), examples, fitted.terms, kept)

    def confident_batches(self, client: Client, y: Tensor, D_fix: Tensor) -> Iterator[ClientBatch]:
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
        first, second = client.images[fix], client.images[partner]
        if self.mix_view == "own" or facts.weak_view:  # a person's own view cannot be drawn once for both
            views = weak(first, facts, seed.at("weak")), weak(second, facts, seed.at("weak partner"))
        else:
            draws = draw_weak(len(fix), facts.size, facts.may_flip, seed.at("weak"))
            views = apply_weak(first, draws), apply_weak(second, draws)
        return normalize(views[0], facts), normalize(views[1], facts)

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

    # The ablated client: no labels from the global model, so nothing to abstain for

    def unsure_update(self, client: Client, model: Snapshot, t: Round) -> Update:
        beliefs = Beliefs(len(client.images))
        batches = self.client_batches(client, self.strong_view)
        loss = partial(self.unsure_loss, beliefs=beliefs)
        update = self.client_fit(client, model, t, batches, loss, len(client.images))
        beliefs.tell(client, self.threshold)
        return update

    def unsure_loss(self, network: Network, batch: UnlabeledBatch, beliefs: Beliefs) -> dict[str, Tensor]:
        """The same two terms with labels from the network as it is at this step, by the batch's own statistics."""
        weak_view, strong_view = batch.views
        with torch.no_grad():
            pseudo = pseudo_labels(network(weak_view))
        beliefs.note(batch.positions, pseudo)
        y, confident = pseudo.labels, pseudo.confident(self.threshold)
        if not bool(confident.any()):
            return {}
        L_fix = F.cross_entropy(network(strong_view)[confident], y[confident])
        if not self.mix_weight:
            return {"loss": L_fix}
        partner = torch.randperm(len(y), device=y.device)
        λ = torch.distributions.Beta(self.mix_beta, self.mix_beta).sample().to(y.device)
        output = network(mix(weak_view, weak_view[partner], λ))[confident]
        to_fix, to_partner = F.cross_entropy(output, y[confident]), F.cross_entropy(output, y[partner][confident])
        L_mix = λ * to_fix + (1 - λ) * to_partner
        return {"loss": L_fix + self.mix_weight * L_mix, "fix": L_fix, "mix": L_mix}

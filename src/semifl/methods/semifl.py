"""SemiFL (Diao, Ding & Tarokh, NeurIPS 2022): alternate training of a labeled server and unlabeled clients.

Letters as in the paper's Algorithm 1: W weights, S_t cohort, τ threshold, E epochs, α(·) weak and 𝒜(·) strong view,
D_fix confident pictures, D_mix their Mixup partners, λ_mix the Mixup weight, λ the weight of the Mixup loss.
`docs/methods/semifl.md` lists every difference from the paper and from the released program.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor

from semifl.data.augment import weak
from semifl.data.mixtures import MixedBatch, Mixing
from semifl.federation.recipe import Averaging, LocalNorm, SemiSupervised, State
from semifl.federation.world import Client, Federation, Preview, Round, RoundResult, Server, Update
from semifl.fields import NotNegative, Positive
from semifl.learning.network import Network
from semifl.learning.weights import Snapshot


@dataclass(frozen=True)
class SemiFL(SemiSupervised, LocalNorm, Averaging):
    """Algorithm 1. Defaults are the paper's text and table."""

    mix_weight: NotNegative = 1.0  # λ, weight of the Mixup loss; 0 trains without it
    mix_beta: Positive = 0.75  # a, of Beta(a, a)

    mix_draw: ClassVar[Literal["round", "epoch"]] = "round"  # when D_mix is drawn
    mix_view: ClassVar[Literal["shared", "own"]] = "shared"  # α of the mixture, or of each of its two pictures

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.mix_weight and self.mix_beta != SemiFL.mix_beta:
            raise ValueError("mix_beta has no effect with mix_weight = 0, where nothing is mixed")

    def round(self, t: Round, state: State, server: Server, clients: Federation) -> RoundResult:
        S_t = self.cohort(clients, t)
        W = self.server_fit(t, state.weights, server).weights
        model = Snapshot(W, self.refresh(W, server, clients, S_t))
        mean = self.aggregate(clients.each(S_t, model, t), W)
        return RoundResult(State(*self.server_optimizer.step(W, mean, state.past)), model)

    def finish(self, t: Round, state: State, server: Server, clients: Federation) -> Snapshot:
        """One more fine-tune and sBN refresh after the last round."""
        W = self.server_fit(t, state.weights, server).weights
        return Snapshot(W, self.refresh(W, server, clients, self.cohort(clients, t)))

    def client_update(self, client: Client, model: Snapshot, t: Round) -> Update | None:
        view = weak(client.images, client.facts, client.seed.at("label"))
        pseudo = client.pseudo_labels(model, view)  # once, with the model as it was sent
        confident = pseudo.confident(self.threshold)
        client.observe(pseudo, confident)
        D_fix = confident.nonzero().flatten()
        if len(D_fix) == 0:
            return None
        batches = self.mixed_batches(client, pseudo.labels, D_fix)
        return self.update(model, self.client_fit(client, model, t, batches, self.client_loss), len(D_fix))

    def mixed_batches(self, client: Client, y: Tensor, D_fix: Tensor) -> Iterator[MixedBatch]:
        mixing = Mixing(self.strong_view, self.mix_beta if self.mix_weight else None, self.mix_draw, self.mix_view)
        return mixing.epochs(client.images, y, D_fix, client.facts, self.client_batch, self.client_epochs, client.seed)

    def client_loss(self, network: Network, batch: MixedBatch) -> dict[str, Tensor]:
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

    def preview(self) -> Preview:
        return Preview(self.strong_view, self.mix_beta if self.mix_weight else None, self.threshold)

"""Batches for training with Mixup on pseudo-labels: a strong view of each confident picture, and a mixture of its weak
view with a partner's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from semifl.data.augment import Kind, apply_weak, beta_weights, draw_weak, mix, normalize, strong, weak
from semifl.data.batches import shuffled, stretches, with_replacement
from semifl.data.dataset import Facts
from semifl.randomness import Seed


class MixedBatch(NamedTuple):
    strong: Tensor  # 𝒜(x_fix)
    mixed: Tensor  # α(x_mix); the strong views again where nothing is mixed
    fix_labels: Tensor
    mix_labels: Tensor
    mix_weight: Tensor  # λ_mix, one per batch


@dataclass(frozen=True)
class Mixing:
    """How views and mixtures are made of a client's pictures and pseudo-labels."""

    strong_view: Kind
    beta: float | None  # λ_mix is drawn from Beta(a, a); None mixes nothing
    draw: Literal["round", "epoch"]  # when partners are drawn
    view: Literal["shared", "own"]  # α of the mixture, or a mixture of two pictures with their own α

    def epochs(
        self, images: Tensor, labels: Tensor, fix: Tensor, facts: Facts, batch: int, epochs: int, seed: Seed
    ) -> Iterator[MixedBatch]:
        """Passes over the pictures at `fix` (D_fix); as many partners (D_mix) are drawn from all pictures."""
        everyone = torch.arange(len(labels))
        partners = with_replacement(everyone, len(fix), seed.at("mix"))
        for e in range(epochs):
            inner = seed.under("epoch", e)
            if self.draw == "epoch":
                partners = with_replacement(everyone, len(fix), inner.at("mix"))
            first, second = shuffled(fix, inner.at("fix order")), shuffled(partners, inner.at("mix order"))
            # Views are made for a long stretch of batches at once: batched tensor code is fastest on many pictures.
            for stretch, cuts in stretches(len(first), batch, facts.size):
                place = inner.under(stretch.start)
                yield from self._batches(images, labels, first[stretch], second[stretch], cuts, facts, place)

    def _batches(
        self, images: Tensor, y: Tensor, fix: Tensor, partner: Tensor, cuts: list[slice], facts: Facts, seed: Seed
    ) -> Iterator[MixedBatch]:
        strong_views = normalize(strong(images[fix], facts, self.strong_view, seed.at("strong")), facts)
        λ_mix, mixed = torch.ones(len(cuts)), strong_views
        if self.beta is not None:
            λ_mix = beta_weights(self.beta, len(cuts), seed.numpy_at("lambda"))
            per_picture = λ_mix.repeat_interleave(torch.tensor([cut.stop - cut.start for cut in cuts]))
            mixed = mix(*self._weak_pair(images[fix], images[partner], facts, seed), per_picture)
        for cut, λ in zip(cuts, λ_mix, strict=True):
            yield MixedBatch(strong_views[cut], mixed[cut], y[fix[cut]], y[partner[cut]], λ)

    def _weak_pair(self, first: Tensor, second: Tensor, facts: Facts, seed: Seed) -> tuple[Tensor, Tensor]:
        """α of both halves of each mixture: α(λ a + (1−λ) b) is the mixture of two views with one crop and flip."""
        if self.view == "own" or facts.weak_view:  # a person's own view cannot be drawn once for both
            views = weak(first, facts, seed.at("weak")), weak(second, facts, seed.at("weak partner"))
        else:
            draws = draw_weak(len(first), facts.size, facts.may_flip, seed.at("weak"))
            views = apply_weak(first, draws), apply_weak(second, draws)
        return normalize(views[0], facts), normalize(views[1], facts)

"""Epochs of batches with their views, for whoever trains in passes over pictures.

Views are made for a long stretch of batches at once: batched tensor code is fastest on many pictures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, count
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from semifl.data.augment import Kind, normalize, strong, weak
from semifl.data.batches import shuffled, stretches
from semifl.data.dataset import Facts
from semifl.randomness import Seed

View = Literal["weak", "strong"]
WEAK_STRONG: tuple[View, View] = ("weak", "strong")


class LabeledBatch(NamedTuple):
    images: Tensor  # weak views
    labels: Tensor


class UnlabeledBatch(NamedTuple):
    views: tuple[Tensor, ...]  # of the same pictures, in the order asked for
    positions: Tensor  # which pictures they are


class PairedBatch(NamedTuple):
    labeled: LabeledBatch
    unlabeled: UnlabeledBatch


def labeled_epochs(
    images: Tensor, labels: Tensor, facts: Facts, batch: int, epochs: int, seed: Seed
) -> Iterator[LabeledBatch]:
    """`epochs` passes in random order, each picture in a new weak view; a last picture alone joins the batch before."""
    return chain.from_iterable(
        _labeled_pass(images, labels, facts, batch, seed.under("epoch", e)) for e in range(epochs)
    )


def _labeled_pass(images: Tensor, labels: Tensor, facts: Facts, batch: int, seed: Seed) -> Iterator[LabeledBatch]:
    order = shuffled(torch.arange(len(labels)), seed.at("order"))
    for stretch, cuts in stretches(len(order), batch, facts.size):
        part = order[stretch]
        views, known = normalize(weak(images[part], facts, seed.at("weak", stretch.start)), facts), labels[part]
        yield from (LabeledBatch(views[cut], known[cut]) for cut in cuts)


def unlabeled_epochs(
    images: Tensor, views: Sequence[View], facts: Facts, batch: int, epochs: int, seed: Seed, kind: Kind = "fixmatch"
) -> Iterator[UnlabeledBatch]:
    """The same for pictures without labels: each in one or more views of its own, `kind` being the strong one's."""
    passes = (_unlabeled_pass(images, views, facts, batch, seed.under("epoch", e), kind) for e in range(epochs))
    return chain.from_iterable(passes)


def _unlabeled_pass(
    images: Tensor, views: Sequence[View], facts: Facts, batch: int, seed: Seed, kind: Kind
) -> Iterator[UnlabeledBatch]:
    order = shuffled(torch.arange(len(images)), seed.at("order"))
    for stretch, cuts in stretches(len(order), batch, facts.size):
        part = order[stretch]
        seen = [_view(images[part], view, facts, kind, seed.under(n, stretch.start)) for n, view in enumerate(views)]
        yield from (UnlabeledBatch(tuple(each[cut] for each in seen), part[cut]) for cut in cuts)


def _view(images: Tensor, view: View, facts: Facts, kind: Kind, seed: Seed) -> Tensor:
    if view == "weak":
        return normalize(weak(images, facts, seed.at("weak")), facts)
    return normalize(strong(images, facts, kind, seed.at("strong")), facts)


def paired_epoch(
    labeled: tuple[Tensor, Tensor],
    unlabeled: Tensor,
    views: Sequence[View],
    facts: Facts,
    batch: int,
    ratio: int,
    seed: Seed,
    kind: Kind = "fixmatch",
) -> Iterator[PairedBatch]:
    """One pass over the unlabeled pictures, `ratio` × `batch` at a time (μB), each with a batch of labeled ones.

    Labeled pictures come round as often as needed, reshuffled every time. Without unlabeled pictures it is one pass
    over the labeled ones, and the unlabeled half of each pair is empty.
    """
    images, labels = labeled
    if len(unlabeled) == 0:
        nothing = UnlabeledBatch(tuple(images.new_empty(0) for _ in views), torch.arange(0))
        yield from (PairedBatch(known, nothing) for known in labeled_epochs(images, labels, facts, batch, 1, seed))
        return
    rounds = (_labeled_pass(images, labels, facts, batch, seed.under("labeled", n)) for n in count())
    known = chain.from_iterable(rounds)
    for more in unlabeled_epochs(unlabeled, views, facts, ratio * batch, 1, seed.under("unlabeled"), kind):
        yield PairedBatch(next(known), more)

"""Who holds what: four ways to divide unlabeled pictures among clients, none with a loop over pictures or clients."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from semifl.data.dataset import UNKNOWN, Dataset
from semifl.data.mapped import Mapped, place_of, remove_spilled, spilled
from semifl.errors import UserError
from semifl.fields import Checked, Count, Positive
from semifl.randomness import Seed

MANY = 1 << 20  # positions, which then take half the memory: there are never 2³¹ of them


@dataclass(frozen=True)
class Holdings:
    """Which positions each client holds: client m has `order[offsets[m]:offsets[m + 1]]`, sorted."""

    order: Tensor
    offsets: Tensor

    def __post_init__(self) -> None:
        if len(self.order) >= MANY:
            for name in ("order", "offsets"):
                object.__setattr__(self, name, getattr(self, name).to(torch.int32))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, client: int) -> Tensor:
        return self.order[self.offsets[client] : self.offsets[client + 1]].long()

    def spilled(self) -> Holdings:
        """The same, and what is long lies in a file, of which a round looks at what its cohort holds."""
        if len(self.order) < MANY:
            return self
        table = Holdings(spilled(self.order), self.offsets)
        place = place_of(table.order)
        assert place is not None
        weakref.finalize(table, remove_spilled, place)
        return table

    def __reduce__(self) -> tuple[Any, ...]:
        """To another process of this machine a file goes by its name."""
        return _opened, (place_of(self.order) or self.order, self.offsets)

    @property
    def counts(self) -> Tensor:
        return self.offsets.diff()

    @staticmethod
    def of(positions: Tensor, owners: Tensor, clients: int) -> Holdings:
        """From the owner of each position; an owner of UNKNOWN means the position is dropped."""
        positions, owners = positions[owners != UNKNOWN], owners[owners != UNKNOWN]
        order = torch.argsort(positions)
        order = order[torch.argsort(owners[order], stable=True)]
        counts = torch.bincount(owners, minlength=clients)
        return Holdings(positions[order], torch.cat([torch.zeros(1, dtype=torch.int64), counts.cumsum(0)]))


def _opened(order: Tensor | Mapped, offsets: Tensor) -> Holdings:
    return Holdings(order.open() if isinstance(order, Mapped) else order, offsets)


class Partition(Protocol):
    """A way to divide `positions` (into the data set) among `clients`."""

    def divide(self, data: Dataset, positions: Tensor, clients: int, seed: Seed) -> Holdings: ...


@dataclass(frozen=True)
class Iid:
    """The same number for everyone at random; fewer than one per client are left over and dropped."""

    def divide(self, data: Dataset, positions: Tensor, clients: int, seed: Seed) -> Holdings:
        share = _share(len(positions), clients)
        order = torch.randperm(len(positions), generator=seed.at("iid"))[: share * clients]
        return Holdings.of(positions[order], torch.arange(clients).repeat_interleave(share), clients)


@dataclass(frozen=True)
class Classes(Checked):
    """At most `per_client` classes each (the paper's K): every class is cut into equal shards, dealt at random.

    A client may draw the same class twice, as in the paper's experiments; nothing is dropped.
    """

    per_client: Count = 2  # K, classes that each client holds

    def divide(self, data: Dataset, positions: Tensor, clients: int, seed: Seed) -> Holdings:
        _share(len(positions), clients)
        labels = _known_labels(data, positions, "classes")
        classes = data.facts.classes
        shards, rest = divmod(self.per_client * clients, classes)
        if rest or not shards:
            raise UserError(
                f"data.partition.per_client × data.clients = {self.per_client} × {clients} shards cannot be "
                f"dealt evenly over {classes} classes: make the product a multiple of {classes}"
            )
        sizes = torch.bincount(labels, minlength=classes)
        if int(sizes.min()) < shards:
            name = data.facts.class_names[int(sizes.argmin())]
            raise UserError(
                f"class {name!r} has {int(sizes.min())} unlabeled pictures, too few to cut into {shards} shards: "
                "use fewer data.clients"
            )
        # Rank of each picture within its class after a shuffle; the first `sizes % shards` shards get one more.
        shuffled = torch.randperm(len(positions), generator=seed.at("classes", "shuffle"))
        shuffled = shuffled[torch.argsort(labels[shuffled], stable=True)]
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), sizes.cumsum(0)[:-1]])
        rank = torch.arange(len(positions)) - starts[labels[shuffled]]
        shard = rank * shards // sizes[labels[shuffled]]
        dealt = torch.randperm(classes * shards, generator=seed.at("classes", "deal"))
        owner_of_shard = torch.empty_like(dealt)
        owner_of_shard[dealt] = torch.arange(classes * shards) // self.per_client
        return Holdings.of(positions[shuffled], owner_of_shard[labels[shuffled] * shards + shard], clients)


@dataclass(frozen=True)
class Dirichlet(Checked):
    """Unbalanced: each class is spread over the clients by proportions drawn from Dirichlet(α).

    As in the paper's experiments, a client that already holds its even share gets no more, and the draw is repeated
    until everyone has at least `minimum` pictures. With thousands of clients no draw ever succeeds; after
    `ATTEMPTS` the last one is repaired by moving as few pictures as possible to those who lack some.
    """

    ATTEMPTS: ClassVar[int] = 100

    alpha: Positive = 0.3  # of the Dirichlet distribution: the smaller, the more uneven
    minimum: Count = 10  # pictures that every client gets at least

    def divide(self, data: Dataset, positions: Tensor, clients: int, seed: Seed) -> Holdings:
        if self.minimum > _share(len(positions), clients):
            raise UserError(
                f"data.partition.minimum = {self.minimum} pictures for each of {clients} clients "
                f"is more than the {len(positions)} unlabeled pictures allow"
            )
        labels = _known_labels(data, positions, "dirichlet").numpy()
        shuffled = torch.randperm(len(positions), generator=seed.at("dirichlet", "shuffle")).numpy()
        by_class = [shuffled[labels[shuffled] == label] for label in range(data.facts.classes)]
        for attempt in range(self.ATTEMPTS):
            owners = self._deal(by_class, len(positions), clients, seed.numpy_at("dirichlet", "deal", attempt))
            if np.bincount(owners, minlength=clients).min() >= self.minimum:
                break
        else:
            owners = self._top_up(owners, clients, seed.numpy_at("dirichlet", "repair"))
        return Holdings.of(positions, torch.from_numpy(owners), clients)

    def _deal(self, by_class: Sequence[np.ndarray], total: int, clients: int, rng: np.random.Generator) -> np.ndarray:
        owners = np.empty(total, dtype=np.int64)
        held = np.zeros(clients, dtype=np.int64)
        for members in by_class:
            proportions = rng.dirichlet(np.full(clients, self.alpha))
            open_to = np.flatnonzero(held < total / clients)  # somebody is, as long as pictures are left
            if len(members) == 0:
                continue
            shares = proportions[open_to] + 1e-300  # a tiny α can leave those with nothing at all
            cuts = (np.cumsum(shares / shares.sum())[:-1] * len(members)).astype(np.int64)
            counts = np.diff(cuts, prepend=0, append=len(members))
            owners[members] = np.repeat(open_to, counts)
            held[open_to] += counts
        return owners

    def _top_up(self, owners: np.ndarray, clients: int, rng: np.random.Generator) -> np.ndarray:
        """Move pictures at random from clients above the minimum to those below it, never taking anyone below."""
        held = np.bincount(owners, minlength=clients)
        lacking = np.repeat(np.arange(clients), np.maximum(self.minimum - held, 0))
        shuffled = rng.permutation(len(owners))
        shuffled = shuffled[np.argsort(owners[shuffled], kind="stable")]
        rank = np.arange(len(owners)) - np.repeat(np.cumsum(held) - held, held)
        spare = shuffled[rank >= self.minimum]
        repaired = owners.copy()
        repaired[rng.permutation(spare)[: len(lacking)]] = lacking
        return repaired


@dataclass(frozen=True)
class BySite:
    """Everyone keeps what is theirs: one client per site, in the order of their names."""

    def divide(self, data: Dataset, positions: Tensor, clients: int, seed: Seed) -> Holdings:
        if data.site_of is None:
            raise UserError(
                'data.partition.name = "site" needs data that come by site, such as folders clients/<site>/'
            )
        if clients != len(data.sites):
            raise UserError(
                f"data.clients = {clients}, but the data come from {len(data.sites)} sites: leave data.clients out"
            )
        return Holdings.of(positions, data.site_of[positions], clients)


PARTITIONS: dict[str, type[Partition]] = {"iid": Iid, "classes": Classes, "dirichlet": Dirichlet, "site": BySite}


def _share(pictures: int, clients: int) -> int:
    """How many pictures each client gets in an even split; at least one."""
    if clients < 1:
        raise UserError(f"data.clients must be at least 1, not {clients}")
    if clients > pictures:
        raise UserError(f"data.clients = {clients} is more than the {pictures} unlabeled pictures there are")
    return pictures // clients


def _known_labels(data: Dataset, positions: Tensor, partition: str) -> Tensor:
    labels = data.labels[positions]
    if bool((labels == UNKNOWN).any()):
        raise UserError(
            f'data.partition.name = "{partition}" divides by class, but these unlabeled pictures have no known class: '
            'use "iid" or "site"'
        )
    return labels

"""Frozen features instead of pictures: what the frozen part of a model makes of a few fixed views, computed once a run.

Where a model's first part never changes, a picture's way through it is the same in every round. So each site computes
it once, for the picture as it is, k weak and k strong views, and keeps it in files of its own. From then on its
pictures are tickets, which say whose picture it is, which one and in which view: a view of a ticket is one of the k,
drawn anew in every pass, and a normalised ticket is the features. Methods notice nothing of it.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from semifl.data.augment import Kind, normalize, strong, weak
from semifl.data.dataset import Facts
from semifl.durable import replace_file
from semifl.federation.workers import threads
from semifl.learning.evaluation import BLOCK, blocks, slices
from semifl.learning.network import Network
from semifl.randomness import Seed

Owner = int
LABELED, TESTED, HELD_OUT, POOLED, CLIENTS = range(5)  # owners; clients are numbered from the last on
AS_IS, WEAK, STRONG = 0, 1, 101  # views; the k of each kind are numbered from theirs on
OWNER, POSITION, VIEW = slice(0, 3), slice(3, 7), 7  # the bytes of a ticket


@dataclass
class FrozenFeatures:
    """The features of every site's pictures, in files below one folder."""

    folder: Path
    facts: Facts  # of the pictures themselves
    views: int  # k
    strong_view: Kind | None  # None: the method has none
    seed: Seed
    settings: str  # all else that decides bits on the way from a picture to its features
    disk_bytes: int = 0  # once everything is there, where somebody has counted
    _opened: dict[tuple[Owner, int], Tensor] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_opened": {}}  # every process opens the files itself

    def facts_of_tickets(self) -> Facts:
        return replace(self.facts, weak_view=self.weak_tickets, strong_view=self.strong_tickets, lookup=self.lookup)

    def ensure(self, owner: Owner, images: Tensor, network: Network, part: slice | None = None) -> None:
        """Compute what is not there yet of an owner's pictures, or of a part that begins and ends with blocks."""
        for number, block in enumerate(blocks(len(images))):
            if (owner, number) in self._opened or (part and not part.start <= block.start < part.stop):
                continue
            pictures = images[block]
            path = self._path(owner, number, pictures)
            kept = _read(path)
            if kept is None:
                features = self._compute(owner, number, pictures, network)
                replace_file(path, lambda unfinished, made=features: _write(unfinished, made))  # type: ignore[misc]
                kept = _read(path)
            assert kept is not None
            self._opened[owner, number] = kept

    def lookup(self, tickets: Tensor) -> Tensor:
        """The features of tickets in their order; of several owners where pictures are pooled."""
        flat = tickets.flatten(1)
        if not len(flat):
            return torch.empty(0)
        owners = _number(flat[:, OWNER])
        parts = {owner: self._of_one(owner, flat[owners == owner]) for owner in sorted(set(owners.tolist()))}
        features = torch.empty(len(flat), *next(iter(parts.values())).shape[1:])
        for owner, part in parts.items():
            features[owners == owner] = part
        return features

    def _of_one(self, owner: Owner, flat: Tensor) -> Tensor:
        positions, views = _number(flat[:, POSITION]), flat[:, VIEW].long()
        last = max(number for holder, number in self._opened if holder == owner)
        numbers = (positions // BLOCK).clamp(max=last)
        found = self._opened[owner, int(numbers[0])]
        features = torch.empty(len(flat), *found.shape[2:])
        for number in sorted(set(numbers.tolist())):
            here = numbers == number
            features[here] = self._opened[owner, number][self._place(views[here]), positions[here] - number * BLOCK]
        return features

    def weak_tickets(self, tickets: Tensor, generator: torch.Generator) -> Tensor:
        return self._drawn(tickets, WEAK, generator)

    def strong_tickets(self, tickets: Tensor, generator: torch.Generator) -> Tensor:
        return self._drawn(tickets, STRONG, generator)

    def bytes_of(self, pictures: int, tested: int, features: int) -> int:
        """On disk, once everything is there."""
        return 4 * features * (pictures * len(self._views_of(CLIENTS)) + tested)

    def _drawn(self, tickets: Tensor, first: int, generator: torch.Generator) -> Tensor:
        drawn = tickets.clone()
        numbers = torch.randint(self.views, (len(tickets),), generator=generator)
        drawn.flatten(1)[:, VIEW] = (first + numbers).to(torch.uint8)
        return drawn

    def _views_of(self, owner: Owner) -> list[int]:
        """Pictures to measure with are seen as they are and no other way."""
        if owner in (TESTED, HELD_OUT):
            return [AS_IS]
        strong_views = range(STRONG, STRONG + self.views) if self.strong_view else range(0)
        return [AS_IS, *range(WEAK, WEAK + self.views), *strong_views]

    def _place(self, views: Tensor) -> Tensor:
        """Where views lie in a file: as it is, weak ones, strong ones."""
        return torch.where(views >= STRONG, views - STRONG + 1 + self.views, views)

    def _compute(self, owner: Owner, number: int, pictures: Tensor, network: Network) -> Tensor:
        """By one thread, whoever asks: bits may depend on how many there are."""
        with threads(1):
            return torch.stack(
                [self._of_view(owner, number, view, pictures, network) for view in self._views_of(owner)]
            )

    def _of_view(self, owner: Owner, number: int, view: int, pictures: Tensor, network: Network) -> Tensor:
        generator = self.seed.at("features", owner, number, view)
        if view >= STRONG:
            assert self.strong_view is not None
            seen = strong(pictures, self.facts, self.strong_view, generator)
        else:
            seen = weak(pictures, self.facts, generator) if view >= WEAK else pictures
        parts = [normalize(seen[part], self.facts).to(network.device) for part in slices(len(seen), self.facts.size)]
        return torch.cat([network.frozen(part).cpu() for part in parts])

    def _path(self, owner: Owner, number: int, pictures: Tensor) -> Path:
        """A name that no other pictures and no other settings would have."""
        facts = [self.facts.mean, self.facts.std, self.facts.size, self.facts.may_flip]
        decides = json.dumps([self.settings, self.views, self.strong_view, self.seed.number(), facts])
        state = zlib.crc32(pictures.contiguous().numpy().data, zlib.crc32(decides.encode()))
        return self.folder / str(owner) / f"{number}-{state:08x}.safetensors"


def tickets(owner: Owner, positions: Tensor) -> Tensor:
    """For pictures as they are: uint8 [n, 1, 1, 8]."""
    made = torch.zeros(len(positions), VIEW + 1, dtype=torch.uint8)
    made[:, OWNER] = _bytes(torch.full_like(positions, owner), 3)
    made[:, POSITION] = _bytes(positions, 4)
    return made[:, None, None, :]


def _bytes(numbers: Tensor, count: int) -> Tensor:
    return torch.stack([(numbers >> 8 * place) & 255 for place in range(count)], dim=1).to(torch.uint8)


def _number(digits: Tensor) -> Tensor:
    places = torch.tensor([256**place for place in range(digits.shape[1])])
    return (digits.long() * places).sum(dim=1)


def _write(path: Path, features: Tensor) -> None:
    features = features.contiguous()
    save_file({"features": features}, path, {"crc32": _checksum(features)})


def _read(path: Path) -> Tensor | None:
    """From disk as they are needed; None if there are none, or damaged ones."""
    try:
        with safe_open(path, framework="pt") as kept:
            facts, features = kept.metadata() or {}, kept.get_tensor("features")
        return features if facts.get("crc32") == _checksum(features) else None
    except (OSError, SafetensorError, KeyError, ValueError):
        return None


def _checksum(features: Tensor) -> str:
    return str(zlib.crc32(features.numpy().data))

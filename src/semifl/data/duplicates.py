"""Pictures that are there twice where they should not be: tested and learned from, under two labels, at two sites.

Compared by a hash of their pixels as everybody here sees them, so that a copy in another format is found too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import NamedTuple

from torch import Tensor

from semifl.data.dataset import UNKNOWN, Dataset
from semifl.words import counted

FLATTERS = "which makes the results look better than they are"


class Held(NamedTuple):
    """A picture: what it is called, its label, and who holds it, "" being the server."""

    name: str
    label: int
    site: str


def duplicates(data: Dataset) -> list[str]:
    """Sentences, the gravest first; none of data sets whose pictures have no names, which are everybody's."""
    if not data.names:
        return []
    held, tested = list(_training(data)), list(_testing(data))
    kept: dict[bytes, list[Held]] = {}
    for content, each in zip(_contents(data.images), held, strict=True):
        kept.setdefault(content, []).append(each)
    test = list(zip(_contents(data.test_images), tested, strict=True))
    learned = [(each, other) for content, each in test if (other := _first(kept.get(content, []), at_client=False))]
    at_clients = [(each, other) for content, each in test if (other := _first(kept.get(content, []), at_client=True))]
    for content, each in test:
        kept.setdefault(content, []).append(each)
    contradictions = [pair for each in kept.values() if (pair := _differing(each, "label"))]
    shared = [pair for each in kept.values() if (pair := _differing(each, "site"))]
    return [
        *_said(learned, f"also among the pictures to learn from, {FLATTERS}", "test picture"),
        *_said(at_clients, f"also at clients, {FLATTERS}", "test picture"),
        *_contradictions(contradictions, data.facts.class_names),
        *_said(shared, "at more than one site, and count more than once", "picture"),
    ]


def _training(data: Dataset) -> Iterator[Held]:
    sites = [""] * len(data.labels)
    if data.site_of is not None:
        sites = [data.sites[place] if place != UNKNOWN else "" for place in data.site_of.tolist()]
    return (Held(*each) for each in zip(data.names, data.labels.tolist(), sites, strict=True))


def _testing(data: Dataset) -> Iterator[Held]:
    return (Held(name, label, "") for name, label in zip(data.test_names, data.test_labels.tolist(), strict=True))


def _contents(images: Tensor) -> Iterator[bytes]:
    return (hashlib.blake2b(picture.contiguous().numpy().data, digest_size=16).digest() for picture in images)


def _first(among: list[Held], at_client: bool) -> Held | None:
    return next((each for each in among if bool(each.site) == at_client), None)


def _differing(equal: list[Held], what: str) -> tuple[Held, Held] | None:
    """Two of these equal pictures that have different labels, or lie at different sites."""
    unknown = UNKNOWN if what == "label" else ""
    known = [each for each in equal if getattr(each, what) != unknown]
    other = next((each for each in known if getattr(each, what) != getattr(known[0], what)), None)
    return (known[0], other) if other else None


def _said(pairs: list[tuple[Held, Held]], where: str, what: str) -> list[str]:
    if not pairs:
        return []
    verb = "is" if len(pairs) == 1 else "are"
    first, second = pairs[0]
    return [f"{counted(len(pairs), what)} {verb} {where}; the first, {first.name}, is {second.name}"]


def _contradictions(pairs: list[tuple[Held, Held]], classes: tuple[str, ...]) -> list[str]:
    if not pairs:
        return []
    first, second = pairs[0]
    verb = "stands" if len(pairs) == 1 else "stand"
    return [
        f"{counted(len(pairs), 'picture')} {verb} under two labels, of which one is wrong; the first, {first.name}, "
        f"is {classes[first.label]}, and {second.name} is {classes[second.label]}"
    ]

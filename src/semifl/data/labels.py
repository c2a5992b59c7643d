"""Who is labeled: the class-balanced draw of the server's pictures, and the part of them held out for validation."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from semifl.errors import UserError
from semifl.randomness import Seed


def balanced_draw(labels: Tensor, count: int, class_names: Sequence[str], seed: Seed) -> Tensor:
    """Positions (sorted) of `count` pictures, the same number of every class."""
    classes = len(class_names)
    if count < classes or count % classes:
        raise UserError(
            f"data.labeled = {count} cannot be balanced over {classes} classes: choose a positive multiple of {classes}"
        )
    share = count // classes
    chosen = []
    for label, name in enumerate(class_names):
        members = torch.nonzero(labels == label).flatten()
        if len(members) < share:
            raise UserError(
                f"data.labeled = {count} asks for {share} pictures of every class, "
                f"but class {name!r} has only {len(members)}"
            )
        order = torch.randperm(len(members), generator=seed.at("labeled", label))
        chosen.append(members[order[:share]])
    return torch.cat(chosen).sort().values


def hold_out(
    positions: Tensor,
    labels: Tensor,
    share: float,
    class_names: Sequence[str],
    seed: Seed,
    key: str = "data.validation",
) -> tuple[Tensor, Tensor]:
    """Split labeled positions into (training, held out), about `share` of every class being held out.

    `key` is what the share is called where it was given.
    """
    kept, held = [], []
    for label, name in enumerate(class_names):
        members = positions[labels[positions] == label]
        number = round(share * len(members))
        if share > 0 and not 0 < number < len(members):
            raise UserError(
                f"{key} = {share} leaves class {name!r}, which has {len(members)} labels, "
                "without a picture to train or to validate on"
            )
        order = torch.randperm(len(members), generator=seed.at("validation", label))
        held.append(members[order[:number]])
        kept.append(members[order[number:]])
    return torch.cat(kept).sort().values, torch.cat(held).sort().values

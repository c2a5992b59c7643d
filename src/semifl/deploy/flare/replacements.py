"""Replace functions and values of FLARE, all of which must exist: another version of FLARE would not obey the gate."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from semifl.errors import UserError

VERSION = "2.9"  # of FLARE, as in pyproject.toml


class Replacement(NamedTuple):
    owner: Any  # Module or class of FLARE.
    name: str
    make: Callable[[Any], Any]  # Return semifl's from FLARE's own.
    why: str


def replace_all(table: Sequence[Replacement]) -> None:
    """Replace everything in the table, or nothing.

    Raises
    ------
    UserError
        If FLARE has another version, or a name that is to be replaced does not exist.
    """
    refuse_other_version()
    for each in table:
        if not hasattr(each.owner, each.name):
            raise UserError(
                f"FLARE has no {each.owner.__name__}.{each.name}, which semifl must replace ({each.why}): "
                "pip install 'semifl[flare]'"
            )
    for each in table:
        setattr(each.owner, each.name, each.make(getattr(each.owner, each.name)))


def refuse_other_version() -> None:
    try:
        version = importlib.metadata.version("nvflare")
    except importlib.metadata.PackageNotFoundError:
        version = "of an unknown version"
    if not version.startswith(f"{VERSION}."):
        raise UserError(
            f"nvflare {version} is installed, and semifl's gate is made for {VERSION} alone: "
            "pip install 'semifl[flare]'"
        )

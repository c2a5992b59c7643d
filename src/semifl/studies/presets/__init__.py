"""Presets: named configurations that state only what differs from the defaults, with what the paper reports for them.

A preset is a TOML file in this folder, or a cell of one of the paper's tables (`paper.py`).
"""

from __future__ import annotations

import fnmatch
import tomllib
from dataclasses import dataclass
from importlib import resources

from semifl.errors import UserError
from semifl.registry import did_you_mean
from semifl.studies.presets import paper
from semifl.toml import Table


@dataclass(frozen=True)
class Preset:
    name: str
    about: str  # one line, with the paper's value where there is one
    table: Table


def presets(pattern: str = "*") -> list[Preset]:
    """Every preset whose name fits the pattern, files first."""
    found = {preset.name: preset for preset in _from_files()}
    for cell in paper.cells():  # one that stands in two tables is one preset
        found.setdefault(cell.name, Preset(cell.name, cell.about, cell.config))
    return [preset for preset in found.values() if fnmatch.fnmatch(preset.name, pattern)]


def find(name: str) -> Preset:
    known = {preset.name: preset for preset in presets()}
    if name not in known:
        raise UserError(
            f"there is no preset or file {name!r}{did_you_mean(name, known) or '; see: semifl list presets'}"
        )
    return known[name]


def _from_files() -> list[Preset]:
    folder = resources.files(__name__)
    files = sorted((each for each in folder.iterdir() if each.name.endswith(".toml")), key=lambda each: each.name)
    found = []
    for file in files:
        text = file.read_text(encoding="utf-8")
        found.append(Preset(file.name.removesuffix(".toml"), text.splitlines()[0].lstrip("# "), tomllib.loads(text)))
    return found

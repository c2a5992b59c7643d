"""A sweep: a grid over keys, each point run with several seeds, as a table that fills itself.

preset = "digits"          # or: config = "pictures.toml"
seeds = [0, 1, 2]
[set]                      # for every run, optional
rounds = 30
[grid]
"method.threshold" = [0.7, 0.8, 0.9]
"method.client_epochs" = [1, 5]
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from semifl import toml
from semifl.configuration.config import decode, override, read
from semifl.errors import UserError
from semifl.studies import presets
from semifl.studies.tables import Cell, ResultTable, file_name, fingerprint
from semifl.toml import dotted

KEYS = ("preset", "config", "seeds", "set", "grid", "title")


class Sweep(NamedTuple):
    table: ResultTable
    seeds: list[int]


def read_sweep(path: Path, notify: Callable[[str], None] = lambda sentence: None) -> Sweep:
    """Read a sweep; `notify` is called with what a change of its method dropped, once for each such change."""
    content = read(path)
    unknown = [key for key in content if key not in KEYS]
    if unknown:
        raise UserError(f"{path}: unknown key {unknown[0]}; a sweep has {', '.join(KEYS)}")
    grid = {key: _values(path, key, value) for key, value in _section(content, "grid", path).items()}
    if not grid:
        raise UserError(f"{path}: a sweep needs [grid], with a list of values for each key")
    seeds = content.get("seeds", [0])
    if not isinstance(seeds, list) or not all(isinstance(seed, int) and seed >= 0 for seed in seeds) or not seeds:
        raise UserError(f"{path}: seeds must be a list of whole numbers such as [0, 1, 2]")
    notes = dict[str, None]()
    start = override(_start(content, path), _settings(_section(content, "set", path)), notes.setdefault)
    cells = [_cell(start, dict(zip(grid, point, strict=True)), path, notes) for point in product(*grid.values())]
    for sentence in notes:  # points repeat each other
        notify(f"{path}: {sentence}")
    return Sweep(ResultTable(str(content.get("title", path.stem)), tuple(cells)), seeds)


def _section(content: toml.Table, name: str, path: Path) -> toml.Table:
    section = content.get(name, {})
    if not isinstance(section, dict):
        raise UserError(f"{path}: {name} is a section, [{name}], with keys such as method.lr")
    keys = dict(dotted(section))
    if "seed" in keys:
        raise UserError(f"{path}: {name} has no seed; a sweep's are seeds = [0, 1, 2] at the top")
    return keys


def _start(content: toml.Table, path: Path) -> toml.Table:
    if "config" in content:
        return read(path.parent / str(content["config"]))
    return presets.find(str(content.get("preset", "digits"))).table


def _cell(start: toml.Table, point: toml.Table, path: Path, notes: dict[str, None]) -> Cell:
    settings = _settings(point)
    config = override(start, settings, notes.setdefault)
    try:
        decode(config)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    mark = fingerprint(config)
    row = ", ".join(settings)
    return Cell(f"{file_name(row)[:80]}-{mark}", row, "accuracy", config)


def _values(path: Path, key: str, value: Any) -> list[Any]:
    if not isinstance(value, list) or not value:
        raise UserError(f"{path}: grid.{key} must be a list of values to try")
    return value


def _settings(keys: toml.Table) -> list[str]:
    return [f"{key}={toml.scalar(value)}" for key, value in keys.items()]

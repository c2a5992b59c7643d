"""A cell's runs are found by its name: a run of that name with another recipe is told, and not taken for the cell's.

The paper's cells keep their names when a version changes what a smaller scale runs.
"""

from __future__ import annotations

import glob
import tomllib
from collections.abc import Iterable
from pathlib import Path

from semifl import toml
from semifl.configuration.config import decode, read
from semifl.errors import UserError
from semifl.studies.tables import Cell
from semifl.toml import Table, dotted

# Between two parts of a table may differ which seed, how a machine computes, how often it tests, where files lie.
MAY_DIFFER = (
    *("seed", "threads", "stack", "compile", "precision", "test_every", "labels_only", "max_failures"),
    *("data.root", "data.verify", "model.weights", "model.source"),
)


def refuse_other_recipes(cells: Iterable[Cell], folder: Path) -> None:
    for cell in {each.name: each for each in cells}.values():  # the same in several tables
        runs = sorted(folder.glob(f"{glob.escape(cell.name)}-seed-*/config.toml"))
        wanted = recipe(tomllib.loads(toml.dumps(decode(cell.config).table()))) if runs else {}
        for path in runs:
            found = recipe(read(path))
            for key in wanted.keys() & found.keys():  # a key that only one has is another version's
                if found[key] != wanted[key]:
                    raise UserError(
                        f"{path.parent} has another recipe than this cell: {key} is {found[key]!r} there and "
                        f"{wanted[key]!r} here; move it away, or name another folder for the runs"
                    )


def recipe(table: Table) -> Table:
    return {key: value for key, value in dotted(table) if key not in MAY_DIFFER}

"""Runs of a table or sweep that an earlier version of semifl made, under the names of this one.

A cell's name ends with a mark of all its values, and a new version may have keys that the old one did not know. A run
that has what the cell says, the new keys by their defaults, is the cell's run all the same.
"""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from semifl.configuration.code import code_in
from semifl.configuration.config import decode, read
from semifl.errors import UserError
from semifl.records.directory import RunDirectory
from semifl.studies.tables import Cell, ResultTable
from semifl.toml import Table, dotted


def adopt(tables: Sequence[ResultTable], folder: Path) -> None:
    """Rename what is found in the folder; what is another experiment, or in use, stays as it is."""
    for cell in [cell for table in tables for cell in table.cells]:
        for path, name in _namesakes(cell, folder):
            if not (folder / name).exists() and _is_of(path, cell):
                with suppress(UserError), RunDirectory(path).locked():
                    path.rename(folder / name)


def _namesakes(cell: Cell, folder: Path) -> Iterator[tuple[Path, str]]:
    """Runs of a cell in this row and column with another mark, each with the name it would have."""
    stem, _, mark = cell.name.rpartition("-")
    for path in sorted(folder.glob(f"{glob.escape(stem)}-{'[0-9a-f]' * len(mark)}-seed-*")):
        if not path.name.startswith(f"{cell.name}-seed-"):
            yield path, cell.name + path.name[len(cell.name) :]


def _is_of(path: Path, cell: Cell) -> bool:
    """Whether the run has every value of the cell; it may have more, filled in by the data."""
    try:
        found = read(path / "config.toml")
        if not code_in(found).items() <= code_in(decode(cell.config).table()).items():
            return False  # nor is it imported to find out
        then = _values(found)
    except UserError:  # of another version, in a way that matters
        return False
    return all(then.get(key) == value for key, value in _values(cell.config).items() if not _is_free(key, value))


def _is_free(key: str, wanted: object) -> bool:
    """What a run settles for itself: its seed, and what "auto" means on its machine."""
    return key == "seed" or (key == "precision" and wanted == "auto")


def _values(table: Table) -> Table:
    return dict(dotted(decode(table).table()))

"""Tables of experiments: what each cell runs, where its runs lie, and what they say.

The paper's own tables come from its presets; anybody's own is a TOML file of rows and columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from semifl import toml
from semifl.configuration.config import decode, override, read
from semifl.errors import UserError
from semifl.records.directory import RunDirectory
from semifl.records.record import number
from semifl.records.verdict import labels_only
from semifl.registry import did_you_mean
from semifl.studies import presets
from semifl.studies.presets import paper
from semifl.studies.scales import SCALES
from semifl.toml import Table, dotted

TITLES = {
    "results": "Comparison with baselines, SSL, FL and SSFL methods (the paper's result table)",
    "component": "Components of alternate training, CIFAR-10 with 4000 labels",
    "ablation": "Local epochs, global momentum and Mixup, CIFAR-10 with 4000 labels",
    "sbn": "Whose pictures the static BatchNorm statistics come from, CIFAR-10",
    "figure": "FedAvg and FedSGD with FixMatch, CIFAR-10 with 4000 labels (the paper's second figure)",
    "authors": "FedMatch and FedRGD as their own authors ran them; the values are theirs",
}
# The part of the paper's tables that the smaller scales run: one data set, and of its labels and partitions these.
REDUCED = {
    **{"results": [250], "component": [4000], "ablation": [4000], "sbn": [250], "figure": [4000]},
    "authors": [1000],
}
REDUCED_LABELS = {"tiny": REDUCED, "small": REDUCED | {"results": [250, 4000]}}
REDUCED_PARTITIONS = {"tiny": ("iid", "k2"), "small": ("iid", "k2", "dir0.3")}


class Cell(NamedTuple):
    name: str  # of its run directories
    row: str
    column: str
    config: Table
    value: str = ""  # what the paper prints


@dataclass(frozen=True)
class ResultTable:
    title: str
    cells: tuple[Cell, ...]

    @property
    def rows(self) -> list[str]:
        return list(dict.fromkeys(cell.row for cell in self.cells))

    @property
    def columns(self) -> list[str]:
        return list(dict.fromkeys(cell.column for cell in self.cells))

    def at(self, row: str, column: str) -> Cell | None:
        return next((cell for cell in self.cells if (cell.row, cell.column) == (row, column)), None)


class Placed(NamedTuple):
    """A cell as the paper has it, and the runs that fill it at some scale."""

    printed: paper.PaperCell
    run: Cell


def placed_cells(scale: str, settings: Sequence[str] = ()) -> list[Placed]:
    """Every cell of the paper's tables; cells that are the same at this scale have the same runs."""
    found, names = [], dict[str, str]()
    for cell in paper.cells():
        if cell.table:
            config = override(SCALES[scale](cell.config), settings)
            name = names.setdefault(toml.dumps(config), cell.name)
            found.append(Placed(cell, Cell(name, cell.row, cell.column, config, cell.value)))
    return found


def paper_tables(scale: str, settings: Sequence[str] = ()) -> list[ResultTable]:
    """The paper's tables, each cell with the settings given; the smaller scales reduce them to one data set."""
    found: dict[str, list[Cell]] = {name: [] for name in TITLES}
    for printed, run in placed_cells(scale, settings):
        if scale == "paper" or is_reduced(printed, scale):
            if settings:
                decode(run.config)  # a mistake in them is told now, not once for every run
            found[printed.table] += [run._replace(column=column) for column in _columns(printed, scale)]
    note = "" if scale == "paper" else f" – here at scale {scale}, the paper's values being those of its own data"
    return [ResultTable(TITLES[name] + note, _without_repeats(cells)) for name, cells in found.items()]


def own_table(
    path: Path, scale: str, more: Sequence[str] = (), notify: Callable[[str], None] = lambda sentence: None
) -> ResultTable:
    """A user's table: [rows.NAME] and [columns.NAME], each with a `preset` (or `config`, a file) and settings.

    `notify` is called once for each row with what a change of its method dropped.
    """
    content = read(path)
    unknown = [key for key in content if key not in ("title", "rows", "columns")]
    if unknown or not isinstance(content.get("rows"), dict) or not content["rows"]:
        raise UserError(
            f"{path}: a table has a title, [rows.NAME] and perhaps [columns.NAME], not {unknown or 'no rows'}"
        )
    columns = content.get("columns", {"accuracy": {}})
    if not isinstance(columns, dict) or not columns:
        raise UserError(f"{path}: columns are sections, [columns.NAME], or left out")
    cells, notes = [], dict[str, None]()
    for row, row_keys in content["rows"].items():
        for column, column_keys in columns.items():
            if not isinstance(row_keys, dict) or not isinstance(column_keys, dict):
                raise UserError(f"{path}: rows and columns are sections, [rows.NAME] and [columns.NAME]")
            settings = dict(dotted(row_keys)) | dict(dotted(column_keys))
            if "seed" in settings:
                raise UserError(f"{path}: a row or column has no seed of its own; seeds are given by --seeds")
            note = partial(lambda where, sentence: notes.setdefault(f"{where}: {sentence}"), f"{path}: {row}")
            config = override(_own_config(settings, scale, path.parent, f"{path}: {row}", note), more, note)
            # With a fingerprint: a row that was changed is another experiment and starts anew.
            mark = fingerprint(config)
            cells.append(Cell(f"{file_name(f'{row} {column}')}-{mark}", row, column, config))
    for sentence in notes:  # columns of a row repeat each other
        notify(sentence)
    return ResultTable(str(content.get("title", path.stem)), tuple(cells))


def _own_config(settings: Table, scale: str, folder: Path, where: str, notify: Callable[[str], None]) -> Table:
    if "config" in settings:  # a person's own file, as it is
        start = read(folder / str(settings.pop("config")))
    else:
        start = SCALES[scale](presets.find(str(settings.pop("preset", "digits"))).table)
    config = override(start, [f"{key}={toml.scalar(value)}" for key, value in settings.items()], notify)
    try:
        decode(config)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error
    return config


def fingerprint(config: Table) -> str:
    """Of every value, stated or not: when a default changes, it is another experiment."""
    return hashlib.sha256(toml.dumps(decode(config).table()).encode()).hexdigest()[:6]


def folder_name(table: str, scale: str, settings: Sequence[str]) -> str:
    """Of a table's runs: other settings are other experiments, and must not be taken for them."""
    mark = hashlib.sha256("\n".join(sorted(settings)).encode()).hexdigest()[:6]
    return f"{table}-{scale}-{mark}" if settings else f"{table}-{scale}"


def run_directory(folder: Path, cell: Cell, seed: int) -> Path:
    return folder / f"{cell.name}-seed-{seed}"


def runs_of(folder: Path, cell: Cell, file: str = "result.json") -> dict[int, Path]:
    """Return the run directories of a cell by seed, those that have a file; by default the finished ones."""
    found = {}
    for path in folder.glob(f"{cell.name}-seed-*/{file}"):
        seed = path.parent.name.removeprefix(f"{cell.name}-seed-")
        if seed.isdigit():
            found[int(seed)] = path.parent
    return dict(sorted(found.items()))


def measured(folder: Path, cell: Cell, metric: str) -> dict[int, float]:
    """What finished runs of a cell say, by seed."""
    values = {seed: measured_in(path, metric) for seed, path in runs_of(folder, cell).items()}
    return {seed: value for seed, value in values.items() if value is not None}


def measured_alone(folder: Path, cell: Cell, metric: str) -> dict[int, float]:
    """Return what the better labels-only model of each finished run reaches, by seed."""
    values = {seed: labels_only(RunDirectory(path).outcome(), metric) for seed, path in runs_of(folder, cell).items()}
    return {seed: value for seed, value in values.items() if value is not None}


def measured_in(directory: Path, metric: str) -> float | None:
    return number(RunDirectory(directory).outcome().get(metric))


class Part(NamedTuple):
    """One of `of` shares of the runs, counted from 1; together they are all runs, and no two have one in common."""

    number: int
    of: int


WHOLE = Part(1, 1)


def wanted_runs(
    tables: Sequence[ResultTable], folder: Path, seeds: Sequence[int], part: Part = WHOLE
) -> dict[Path, tuple[Cell, int]]:
    """Return the runs of a part by directory, seed by seed so that a table fills evenly, whether done or not."""
    every = {
        run_directory(folder, cell, seed): (cell, seed) for seed in seeds for table in tables for cell in table.cells
    }
    return dict(islice(every.items(), part.number - 1, None, part.of))


def missing(wanted: Mapping[Path, tuple[Cell, int]]) -> list[tuple[Cell, int]]:
    """Return the runs that are still to be done."""
    return [run for directory, run in wanted.items() if not (directory / "result.json").is_file()]


def select_cells(tables: Sequence[ResultTable], patterns: Sequence[str]) -> list[ResultTable]:
    """Return the tables with the cells that the patterns name: exact names, or globs, of rows, columns and cells.

    A cell is kept if its row is among the rows named and its column among the columns, or if it is named itself by a
    pattern that fits no row and no column.
    """
    if not patterns:
        return list(tables)
    cells = [cell for table in tables for cell in table.cells]
    rows = list(dict.fromkeys(cell.row for cell in cells))
    columns = list(dict.fromkeys(cell.column for cell in cells))
    names = list(dict.fromkeys(cell.name for cell in cells))
    rows_named, columns_named, cells_named = set[str](), set[str](), set[str]()
    for pattern in patterns:
        in_rows, in_columns, in_names = (_fitting(pattern, known) for known in (rows, columns, names))
        if not in_rows | in_columns | in_names:
            known = [*rows, *columns, *names]
            hint = did_you_mean(pattern, known) or f", such as {known[0]!r}"
            raise UserError(f"--only {pattern!r} is no row, column or cell{hint}")
        rows_named |= in_rows
        columns_named |= in_columns
        cells_named |= set() if in_rows | in_columns else in_names

    def is_kept(cell: Cell) -> bool:
        in_rows = not rows_named or cell.row in rows_named
        in_columns = not columns_named or cell.column in columns_named
        return cell.name in cells_named or (bool(rows_named | columns_named) and in_rows and in_columns)

    kept = [ResultTable(table.title, tuple(filter(is_kept, table.cells))) for table in tables]
    if not any(table.cells for table in kept):
        raise UserError("--only leaves no cell: no row that it names has one in a column that it names")
    return [table for table in kept if table.cells]


def _fitting(pattern: str, names: Sequence[str]) -> set[str]:
    return {name for name in names if pattern == name or fnmatchcase(name, pattern)}


def _columns(cell: paper.PaperCell, scale: str) -> list[str]:
    """Where a cell is printed: one that needs no labels at the server spans the columns of its data set."""
    if cell.table != "results":
        return [cell.column]
    if scale == "tiny":
        return ["accuracy"]
    return [name for data, labeled in paper.COLUMNS if cell.column in (data, name := f"{data}-{labeled}")]


def is_reduced(cell: paper.PaperCell, scale: str) -> bool:
    """Whether a smaller scale runs it."""
    data, all_labels = cell.config["data"], cell.config["method"].get("labels") == "all"
    partitions = [paper.PARTITIONS[name] for name in REDUCED_PARTITIONS[scale]]
    wanted = data["name"] == "cifar10" and (all_labels or data["labeled"] in REDUCED_LABELS[scale][cell.table])
    return wanted and data["partition"] in partitions


def _without_repeats(cells: list[Cell]) -> tuple[Cell, ...]:
    return tuple(dict(((cell.row, cell.column), cell) for cell in reversed(cells)).values())[::-1]


def file_name(text: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "._" else "-" for letter in text.lower()).strip("-")

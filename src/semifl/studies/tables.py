"""Tables of experiments: what each cell runs, where its runs lie, and what they say.

The paper's own tables come from its presets; anybody's own is a TOML file of rows and columns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from semifl import toml
from semifl.configuration.config import decode, override, read
from semifl.errors import UserError
from semifl.records.directory import RunDirectory
from semifl.records.record import number
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


def own_table(path: Path, scale: str, more: Sequence[str] = ()) -> ResultTable:
    """A user's table: [rows.NAME] and [columns.NAME], each with a `preset` (or `config`, a file) and settings."""
    content = read(path)
    unknown = [key for key in content if key not in ("title", "rows", "columns")]
    if unknown or not isinstance(content.get("rows"), dict) or not content["rows"]:
        raise UserError(
            f"{path}: a table has a title, [rows.NAME] and perhaps [columns.NAME], not {unknown or 'no rows'}"
        )
    columns = content.get("columns", {"accuracy": {}})
    if not isinstance(columns, dict) or not columns:
        raise UserError(f"{path}: columns are sections, [columns.NAME], or left out")
    cells = []
    for row, row_keys in content["rows"].items():
        for column, column_keys in columns.items():
            if not isinstance(row_keys, dict) or not isinstance(column_keys, dict):
                raise UserError(f"{path}: rows and columns are sections, [rows.NAME] and [columns.NAME]")
            settings = dict(dotted(row_keys)) | dict(dotted(column_keys))
            if "seed" in settings:
                raise UserError(f"{path}: a row or column has no seed of its own; seeds are given by --seeds")
            config = override(_own_config(settings, scale, path.parent, f"{path}: {row}"), more)
            # With a fingerprint: a row that was changed is another experiment and starts anew.
            mark = fingerprint(config)
            cells.append(Cell(f"{file_name(f'{row} {column}')}-{mark}", row, column, config))
    return ResultTable(str(content.get("title", path.stem)), tuple(cells))


def _own_config(settings: Table, scale: str, folder: Path, where: str) -> Table:
    if "config" in settings:  # a person's own file, as it is
        start = read(folder / str(settings.pop("config")))
    else:
        start = SCALES[scale](presets.find(str(settings.pop("preset", "digits"))).table)
    config = override(start, [f"{key}={toml.scalar(value)}" for key, value in settings.items()])
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


def measured(folder: Path, cell: Cell, metric: str) -> dict[int, float]:
    """What finished runs of a cell say, by seed."""
    found = {}
    for path in sorted(folder.glob(f"{cell.name}-seed-*/result.json")):
        seed = path.parent.name.removeprefix(f"{cell.name}-seed-")
        value = number(RunDirectory(path.parent).outcome().get(metric))
        if seed.isdigit() and value is not None:
            found[int(seed)] = value
    return dict(sorted(found.items()))


def missing(tables: Sequence[ResultTable], folder: Path, seeds: Sequence[int]) -> list[tuple[Cell, int]]:
    """The runs that are still to be done, each once, seed by seed so that a table fills evenly."""
    todo: dict[Path, tuple[Cell, int]] = {}
    for seed in seeds:
        for table in tables:
            for cell in table.cells:
                directory = run_directory(folder, cell, seed)
                if not (directory / "result.json").is_file():
                    todo.setdefault(directory, (cell, seed))
    return list(todo.values())


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

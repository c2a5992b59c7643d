"""`semifl table`: the paper's tables, or one's own, with what has been measured; runs what is missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from semifl.cli import options
from semifl.errors import UserError
from semifl.records.metrics import OF_A_MODEL, metric_of, ranked
from semifl.registry import did_you_mean
from semifl.report.comparison import mixed_code
from semifl.report.tables import EMPTY, LABELS_ONLY, OF_THE_BEST, Entry, Format, Grid, render

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from semifl.studies.table_runs import CellRun
    from semifl.studies.tables import Cell, Part, ResultTable

ONLY = "accuracy"  # what the column of a table with one column is called in its cells; people see the metric
PREFIXES = ("", "best_", "labels_only_", "plain_labels_only_")
OF_A_RUN = ("bytes_up", "bytes_down", "seconds")
NUMBERS = [*(f"{prefix}{name}" for prefix in PREFIXES for name in OF_A_MODEL), "best_test_accuracy", *OF_A_RUN]
Metric = Annotated[
    str, typer.Option("--metric", help="A measure of result.json: auc, best_f1, labels_only_accuracy, …")
]


def command(
    what: Annotated[str, typer.Argument(metavar="paper|FILE", help="The paper's tables, or a TOML file of your own.")],
    settings: options.Settings = None,
    seeds: Annotated[str, typer.Option("--seeds", help="Run what is missing, e.g. 0,1,2,3.")] = "",
    scale: Annotated[
        Literal["tiny", "small", "paper"], typer.Option("--scale", help="digits, a fast CIFAR-10, or as published.")
    ] = "paper",
    out: Annotated[Path | None, typer.Option("--out", help="Where the runs lie [default: runs/tables/…].")] = None,
    metric: Metric = "",
    against: Annotated[str, typer.Option("--against", metavar="ROW", help="Also print differences from a row.")] = "",
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="A row, column or cell, or a glob; repeatable.")
    ] = None,
    part: Annotated[
        str, typer.Option("--part", metavar="K/N", help="Run the K-th of N parts of the runs, for job arrays.")
    ] = "",
    form: options.TableFormat = "markdown",
    curves: Annotated[
        Path | None, typer.Option("--curves", metavar="FILE", help="Draw the metric by round, as .svg or .png.")
    ] = None,
    jobs: options.Jobs = None,
    workers: options.WorkersInEach = 1,
    on: options.On = "",
    device: options.Device = "auto",
) -> None:
    """Print tables of results; with --seeds first run what is missing."""
    from semifl.studies.adoption import adopt
    from semifl.studies.recipes import refuse_other_recipes
    from semifl.studies.tables import folder_name, own_table, paper_tables, select_cells

    refuse_unknown_metric(metric)
    is_paper = what == "paper"
    more, share = settings or [], _part(part, seeds)
    tables = paper_tables(scale, more) if is_paper else [own_table(Path(what), scale, more, options.notify)]
    if curves:
        _refuse_curves(curves, is_paper)
    if against and not any(against in table.rows for table in tables):
        known = list(dict.fromkeys(row for table in tables for row in table.rows))
        raise UserError(f"--against {against!r} is not a row{did_you_mean(against, known) or f': {known[0]!r}, …'}")
    tables = select_cells(tables, only or [])
    folder = out or Path("runs/tables") / folder_name("paper" if is_paper else Path(what).stem, scale, more)
    adopt(tables, folder)
    refuse_other_recipes((cell for table in tables for cell in table.cells), folder)
    hands = options.hands(on, jobs, workers, device)
    metrics = [metric or ("best_test_accuracy" if is_paper else deciding(table)) for table in tables]
    failures = fill_table(tables, folder, parse_seeds(seeds), hands, metrics[0], share) if seeds else []
    print_tables(tables, folder, metrics, against, form, is_paper)
    if curves:
        draw_table(tables[0], folder, metrics[0], curves)
    report_failures(failures)


def _part(text: str, seeds: str) -> Part:
    from semifl.studies.tables import WHOLE, Part

    if not text:
        return WHOLE
    number, _, of = text.partition("/")
    if not (number.isdecimal() and of.isdecimal() and 1 <= int(number) <= int(of)):
        raise UserError(f"--part {text!r} is not of the form K/N, such as 3/8, with K from 1 to N")
    if not seeds:
        raise UserError("--part divides runs, so it needs --seeds, such as --seeds 0,1,2")
    return Part(int(number), int(of))


def _refuse_curves(file: Path, is_paper: bool) -> None:
    if is_paper:
        raise UserError("--curves draws a table of your own; the paper's curves are drawn by 'semifl figure'")
    if file.suffix not in (".svg", ".png"):
        raise UserError(f"--curves {file} must end in .svg or .png")
    if not file.absolute().parent.is_dir():
        raise UserError(f"--curves {file}: there is no folder {file.parent}")


def refuse_unknown_metric(metric: str) -> None:
    if metric and metric not in NUMBERS:
        raise UserError(
            f"--metric {metric!r} is no measure of result.json"
            f"{did_you_mean(metric, NUMBERS) or f': try {NUMBERS[0]} or {NUMBERS[2]}'}"
        )


def deciding(table: ResultTable) -> str:
    """The metric of a table's first run; it decides for all."""
    return metric_of(table.cells[0].config)


def parse_seeds(text: str) -> list[int]:
    try:
        seeds = [int(part) for part in text.split(",")]
    except ValueError:
        seeds = [-1]
    if min(seeds) < 0:
        raise UserError(f"--seeds {text!r} is not of the form 0,1,2")
    return seeds


def fill_table(
    tables: Sequence[ResultTable],
    folder: Path,
    seeds: list[int],
    hands: options.Hands,
    metric: str,
    part: tuple[int, int] = (1, 1),
) -> list[str]:
    """Run what is missing of a part, and say the metric of each run; return what failed."""
    from semifl.cli.display import interrupted
    from semifl.studies.tables import Part, measured_in, missing, run_directory, wanted_runs

    wanted = wanted_runs(tables, folder, seeds, Part(*part))
    todo = missing(wanted)
    typer.echo(f"{len(todo)} of {len(wanted)} runs to do in {folder}", err=True)
    failures = []
    with interrupted(folder):
        for number, done in enumerate(_outcomes(todo, folder, hands), 1):
            value = None if done.failed else measured_in(run_directory(folder, done.cell, done.seed), metric)
            said = "" if value is None else f"{metric} {value:.1f}, "
            line = f"{done.cell.name} seed {done.seed}: {said}{done.text}"
            typer.echo(f"{number}/{len(todo)}  {line}", err=True)
            if done.trace and options.wants_traceback():
                typer.echo(done.trace, err=True)
            if done.failed:
                failures.append(line)
    return failures


def _outcomes(todo: list[tuple[Cell, int]], folder: Path, hands: options.Hands) -> Iterator[CellRun]:
    if not hands.cluster:
        from semifl.studies.table_runs import fill

        return fill(todo, folder, hands.jobs, hands.workers, options.device_name(hands.device))
    from semifl.studies.cluster_runs import fill_on

    return fill_on(hands.cluster, todo, folder, options.told()) if todo else iter(())


def report_failures(failures: list[str]) -> None:
    if failures:
        typer.echo(f"{len(failures)} runs failed; the same command tries them again:", err=True)
        for failure in failures:
            typer.echo(f"  {failure}", err=True)
        raise typer.Exit(1)


def print_tables(
    tables: Sequence[ResultTable], folder: Path, metrics: Sequence[str], against: str, form: Format, population: bool
) -> None:
    """Print what has been measured, and say where a cell mixes runs of different code."""
    from semifl.studies.tables import runs_of

    grids = [_grid(table, folder, metric, against, population) for table, metric in zip(tables, metrics, strict=True)]
    typer.echo(f"{chr(10) * (form == 'markdown')}{render(grids, form)}")
    cells = [cell for table in tables for cell in table.cells]
    if sentence := mixed_code({f"{cell.row}, {cell.column}": runs_of(folder, cell).values() for cell in cells}):
        typer.echo(f"warning: {sentence}", err=True)


def _grid(table: ResultTable, folder: Path, metric: str, against: str, population: bool) -> Grid:
    from semifl.studies.tables import measured

    rows = {
        row: [
            Entry(measured(folder, cell, metric), cell.value) if (cell := table.at(row, column)) else EMPTY
            for column in table.columns
        ]
        for row in table.rows
    }
    columns = [metric if column == ONLY else column for column in table.columns]
    grid = Grid(metric, columns, rows, table.title, against, len(columns), population)
    return _with_labels_only(grid, table, folder)


def _with_labels_only(grid: Grid, table: ResultTable, folder: Path) -> Grid:
    """Add what the same servers reach without clients: a column where there is one, else a row beside the best."""
    from semifl.studies.tables import measured_alone

    if not grid.metric.endswith(OF_A_MODEL) or grid.metric.startswith(("labels_only_", "plain_labels_only_")):
        return grid
    alone = {(cell.row, cell.column): Entry(measured_alone(folder, cell, grid.metric)) for cell in table.cells}
    if not any(entry.values for entry in alone.values()):
        return grid
    if len(table.columns) == 1:
        rows = {row: [*entries, alone.get((row, table.columns[0]), EMPTY)] for row, entries in grid.rows.items()}
        return replace(grid, columns=[*grid.columns, LABELS_ONLY], rows=rows)
    best = [_best_row(grid, place) for place in range(len(table.columns))]
    cells = [alone.get((row, column), EMPTY) for row, column in zip(best, table.columns, strict=True)]
    return replace(grid, rows={**grid.rows, OF_THE_BEST: cells})


def _best_row(grid: Grid, place: int) -> str:
    """Return the row with the best mean of a column."""
    means = {row: found.mean for row, entries in grid.rows.items() if (found := grid.mean(entries[place]))}
    return max(means, key=lambda row: ranked(grid.metric, means[row]), default="")


def draw_table(table: ResultTable, folder: Path, metric: str, file: Path) -> None:
    """Draw each row's metric by round, a panel for each column."""
    from semifl.report.groups import Group
    from semifl.report.paper_figures import Curve, Drawing, draw, save_as
    from semifl.report.reading import read_run
    from semifl.studies.tables import runs_of

    key = metric.removeprefix("best_").removeprefix("test_")
    panels = []
    for column in table.columns:
        cells = {row: cell for row in table.rows if (cell := table.at(row, column))}
        runs = {row: runs_of(folder, cell, "rounds.jsonl").values() for row, cell in cells.items()}
        lines = [Curve(Group(row, [read_run(path) for path in paths])) for row, paths in runs.items()]
        panels.append(Drawing("" if column == ONLY else column, lines, key=key, ylabel=key, zoomed=True))
    if not any(curve.group.series(key) for panel in panels for curve in panel.curves):
        raise UserError(f"--curves: no run in {folder} has rounds with {key}; run some with --seeds 0")
    save_as(draw(table.title, panels, min(len(panels), 3), ""), file)
    typer.echo(f"curves: {file}", err=True)

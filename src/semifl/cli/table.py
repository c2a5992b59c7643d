"""`semifl table`: the paper's tables, or one's own, with what has been measured; runs what is missing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from semifl.cli import options
from semifl.errors import UserError
from semifl.records.metrics import OF_A_MODEL, labels_only, metric_of, ranked
from semifl.registry import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semifl.studies.table_runs import CellRun
    from semifl.studies.tables import Cell, ResultTable

Values = dict[tuple[str, str], dict[int, float]]  # by row and column, then by seed
ONLY = "accuracy"  # what the column of a table with one column is called in its cells; people see the metric
PREFIXES = ("", "best_", "labels_only_", "plain_labels_only_")
NUMBERS = [*(f"{prefix}{name}" for prefix in PREFIXES for name in OF_A_MODEL), "best_test_accuracy"]
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
    jobs: options.Jobs = None,
    workers: options.WorkersInEach = 1,
    on: options.On = "",
    device: options.Device = "auto",
) -> None:
    """Print tables of results; with --seeds first run what is missing."""
    from semifl.studies.adoption import adopt
    from semifl.studies.recipes import refuse_other_recipes
    from semifl.studies.tables import folder_name, own_table, paper_tables

    refuse_unknown_metric(metric)
    name = "paper" if what == "paper" else Path(what).stem
    more = settings or []
    tables = paper_tables(scale, more) if what == "paper" else [own_table(Path(what), scale, more)]
    if against and not any(against in table.rows for table in tables):
        known = list(dict.fromkeys(row for table in tables for row in table.rows))
        raise UserError(f"--against {against!r} is not a row{did_you_mean(against, known) or f': {known[0]!r}, …'}")
    folder = out or Path("runs/tables") / folder_name(name, scale, more)
    adopt(tables, folder)
    refuse_other_recipes((cell for table in tables for cell in table.cells), folder)
    hands = options.hands(on, jobs, workers, device)
    failures = fill_table(tables, folder, parse_seeds(seeds), hands) if seeds else []
    for table in tables:
        print_table(table, folder, metric or ("best_test_accuracy" if what == "paper" else deciding(table)), against)
    report_failures(failures)


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


def fill_table(tables: list[ResultTable], folder: Path, seeds: list[int], hands: options.Hands) -> list[str]:
    from semifl.cli.display import interrupted
    from semifl.studies.tables import missing

    todo = missing(tables, folder, seeds)
    cells = {(cell.name, seed) for table in tables for cell in table.cells for seed in seeds}
    typer.echo(f"{len(todo)} of {len(cells)} runs to do in {folder}", err=True)
    failures = []
    with interrupted(folder):
        for number, done in enumerate(_outcomes(todo, folder, hands), 1):
            line = f"{done.cell.name} seed {done.seed}: {done.text}"
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


def print_table(table: ResultTable, folder: Path, metric: str, against: str) -> None:
    from semifl.report.comparison import difference_text, paired, summary
    from semifl.report.markdown import markdown_table
    from semifl.studies.tables import measured

    values = {(cell.row, cell.column): measured(folder, cell, metric) for cell in table.cells}
    printed = {(cell.row, cell.column): cell.value for cell in table.cells}
    typer.echo(f"\n## {table.title}\n")
    brackets = " In brackets the published value." if any(printed.values()) else ""
    typer.echo(f"{metric}: mean (sd, number of seeds).{brackets}\n")
    columns = [metric if column == ONLY else column for column in table.columns]
    lines = []
    for row in table.rows:
        cells = [(row, column) for column in table.columns]
        lines.append([row, *(_cell(summary(values.get(at, {})), printed.get(at, "")) for at in cells)])
    _add_labels_only(table, folder, metric, values, columns, lines)
    typer.echo(markdown_table(["", *columns], lines))
    if against in table.rows:
        typer.echo(f"\nDifference from {against!r}, seed by seed: mean [95 % interval]\n")
        lines = []
        for row in table.rows:
            pairs = [(values.get((row, column), {}), values.get((against, column), {})) for column in table.columns]
            lines.append([row, *(difference_text(paired(*pair)) for pair in pairs)])
        columns = [metric if column == ONLY else column for column in table.columns]
        typer.echo(markdown_table(["", *columns], [line for line in lines if line[0] != against]))


def _add_labels_only(
    table: ResultTable, folder: Path, metric: str, values: Values, columns: list[str], lines: list[list[str]]
) -> None:
    """What the same servers reach without clients: a column where there is one, else a row beside the best."""
    from semifl.report.comparison import summary
    from semifl.studies.tables import measured

    if metric.startswith(("labels_only_", "plain_labels_only_")):
        return
    alone = {(cell.row, cell.column): summary(measured(folder, cell, labels_only(metric))) for cell in table.cells}
    if not any(alone.values()):
        return
    if len(columns) == 1:
        columns.append("labels only")
        for line in lines:
            line.append(alone.get((line[0], table.columns[0]), "") or "–")
        return
    best = [_best(values, column, metric) for column in table.columns]
    cells = [alone.get((row, column), "") for row, column in zip(best, table.columns, strict=True)]
    lines.append(["labels only, of the best row", *(each or "–" for each in cells)])


def _best(values: Values, column: str, metric: str) -> str:
    """The row with the best mean of a column."""
    means = {row: sum(each.values()) / len(each) for (row, at), each in values.items() if at == column and each}
    return max(means, key=lambda row: ranked(metric, means[row]), default="")


def _cell(ours: str, paper: str) -> str:
    return f"{ours or '–'} [{paper}]" if paper else ours or "–"

"""`semifl sweep`: a grid over keys and seeds."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from semifl.cli import options, table
from semifl.records.metrics import ranked


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A TOML file with [grid]; see docs/tables.md.")],
    out: Annotated[Path | None, typer.Option("--out", help="Where the runs lie [default: runs/sweeps/NAME].")] = None,
    metric: table.Metric = "",
    form: options.TableFormat = "markdown",
    jobs: options.Jobs = None,
    workers: options.WorkersInEach = 1,
    on: options.On = "",
    device: options.Device = "auto",
) -> None:
    """Run every point of a grid that is missing, then print a table with the best first."""
    from semifl.studies.adoption import adopt
    from semifl.studies.sweeps import read_sweep
    from semifl.studies.tables import ResultTable, measured

    table.refuse_unknown_metric(metric)
    sweep = read_sweep(file, options.notify)
    metric = metric or table.deciding(sweep.table)
    folder = out or Path("runs/sweeps") / file.stem
    adopt([sweep.table], folder)
    failures = table.fill_table([sweep.table], folder, sweep.seeds, options.hands(on, jobs, workers, device), metric)

    def rank(row: str) -> float:
        cell = sweep.table.at(row, "accuracy")
        values = measured(folder, cell, metric) if cell else {}
        return ranked(metric, sum(values.values()) / len(values)) if values else -math.inf

    best_first = sorted(sweep.table.cells, key=lambda cell: -rank(cell.row))
    ordered = ResultTable(sweep.table.title, tuple(best_first))
    table.print_tables([ordered], folder, [metric], best_first[0].row, form, population=False)
    table.report_failures(failures)

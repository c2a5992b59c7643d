"""`semifl compare`: runs side by side, seed by seed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semifl.cli import options
from semifl.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from semifl.report.groups import Group


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Finished run directories.")],
    metric: Annotated[
        str, typer.Option("--metric", help="A number of result.json [default: the metric that decided the first run].")
    ] = "",
    form: options.TableFormat = "markdown",
    on: options.On = "",
) -> None:
    """Mean over seeds for each setting, and paired differences from the first with 95 % intervals.

    With --on, runs that are not finished are finished first, on the cluster.
    """
    from semifl.report.comparison import mixed_code
    from semifl.report.groups import group_runs
    from semifl.report.reading import read_run
    from semifl.report.tables import LABELS_ONLY, Entry, Grid, render

    if on:
        _finish(list(dict.fromkeys(runs)), on)
    groups = group_runs([read_run(path) for path in dict.fromkeys(runs)])
    metric = metric or groups[0].metric
    alone = {group.label: Entry(_labels_only(group, metric)) for group in groups}
    rows = {group.label: [Entry(_by_seed(group, metric)), alone[group.label]] for group in groups}
    columns = [metric, LABELS_ONLY]
    if not any(entry.values for entry in alone.values()):
        columns, rows = columns[:1], {label: entries[:1] for label, entries in rows.items()}
    grid = Grid(metric, columns, rows, against=groups[0].label, paired_columns=1)
    typer.echo(render([grid], form))
    unpaired = [label for label in rows if label != grid.against and grid.differences(label)[0] is None]
    if unpaired:
        typer.echo(f"No seed in common with {grid.against!r}: {'; '.join(unpaired)}.", err=True)
    for sentence in _of_single_runs(groups, metric):
        typer.echo(sentence, err=form != "markdown")
    if sentence := mixed_code({group.label: [run.path for run in group.runs] for group in groups}):
        typer.echo(f"warning: {sentence}", err=True)


def _finish(runs: list[Path], on: str) -> None:
    from semifl.configuration.clusters import find_cluster
    from semifl.records.directory import RunDirectory
    from semifl.studies.cluster_runs import finish_on

    for path in runs:
        RunDirectory(path).refuse_unreadable()
    finish_on(find_cluster(on, "auto"), runs, options.told())


def _of_single_runs(groups: list[Group], metric: str) -> Iterator[str]:
    """Compare groups of one run each on the test examples of both, as seeds tell nothing there."""
    from semifl.report.comparison import on_same_examples

    first, *others = groups
    for group in others:
        if len(first.runs) == len(group.runs) == 1:
            gap = on_same_examples(group.runs[0].path, first.runs[0].path, metric)
            if gap:
                told = "" if gap.is_clear else ", which cannot be told from none"
                yield f"On the same test examples {group.label!r} is {gap} from {first.label!r}{told}."


def _labels_only(group: Group, metric: str) -> dict[int, float]:
    """The same number of each run's better model trained without clients, by seed, where there are such."""
    from semifl.records.verdict import labels_only

    found = {run.seed: labels_only(run.outcome, metric) for run in group.runs}
    return {seed: value for seed, value in found.items() if value is not None}


def _by_seed(group: Group, metric: str) -> dict[int, float]:
    """A number of result.json by seed; of a metric that of the kept model, as reports have it."""
    from semifl.records.metrics import METRICS
    from semifl.records.record import number

    values: dict[int, float] = {}
    for run in group.runs:
        if not run.is_finished:
            raise UserError(f"{run.path}: {run.problems[0][0].lower()}{run.problems[0][1:].rstrip('.')}")
        value = number(run.of_the_kept(metric) if metric in METRICS else run.result.get(metric))
        if value is None:
            numbers = [key for key, each in run.result.items() if number(each) is not None]
            raise UserError(f"{run.path} has no number {metric!r}; it has {', '.join(numbers)}")
        if run.seed in values:
            raise UserError(f"{run.path} is there twice: another run has the same settings and seed {run.seed}")
        values[run.seed] = value
    return values

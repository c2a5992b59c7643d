"""`semifl compare`: runs side by side, seed by seed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semifl.cli import options
from semifl.errors import UserError

if TYPE_CHECKING:
    from semifl.report.comparison import Difference
    from semifl.report.groups import Group


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Finished run directories.")],
    metric: Annotated[
        str, typer.Option("--metric", help="A number of result.json [default: the metric that decided the first run].")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    on: options.On = "",
) -> None:
    """Mean over seeds for each setting, and paired differences from the first with 95 % intervals.

    With --on, runs that are not finished are finished first, on the cluster.
    """
    from semifl.report.comparison import paired
    from semifl.report.groups import group_runs
    from semifl.report.reading import read_run

    if on:
        _finish(list(dict.fromkeys(runs)), on)
    groups = group_runs([read_run(path) for path in dict.fromkeys(runs)])
    metric = metric or groups[0].metric
    alone = {group.label: _labels_only(group, metric) for group in groups}
    values = {group.label: _by_seed(group, metric) for group in groups}
    first = next(iter(values))
    differences = {name: paired(each, values[first]) for name, each in values.items() if name != first}
    if as_json:
        plain = {name: _plain(each) for name, each in differences.items() if each}
        facts = {
            name: {"values": each, "labels_only": alone[name], "difference": plain.get(name)}
            for name, each in values.items()
        }
        typer.echo(json.dumps({"metric": metric, "against": first, "settings": facts}))
        return
    _print(values, alone, differences, metric, first)


def _finish(runs: list[Path], on: str) -> None:
    from semifl.configuration.clusters import find_cluster
    from semifl.records.directory import RunDirectory
    from semifl.studies.cluster_runs import finish_on

    for path in runs:
        RunDirectory(path).refuse_unreadable()
    finish_on(find_cluster(on, "auto"), runs, options.told())


def _print(
    values: dict[str, dict[int, float]],
    alone: dict[str, dict[int, float]],
    differences: dict[str, Difference | None],
    metric: str,
    first: str,
) -> None:
    from semifl.report.comparison import difference_text, summary
    from semifl.report.markdown import markdown_table

    lines = [
        [name, summary(each), summary(alone[name]) or "–", difference_text(differences.get(name))]
        for name, each in values.items()
    ]
    header = ["settings", f"{metric}: mean (sd, n)", "labels only", "difference [95 % interval]"]
    shown = range(4) if any(alone.values()) else (0, 1, 3)
    typer.echo(markdown_table([header[i] for i in shown], [[line[i] for i in shown] for line in lines]))
    if len(values) > 1:
        unpaired = [name for name in values if name != first and differences[name] is None]
        typer.echo(f"\nDifferences are from {first!r}, seed by seed.")
        if unpaired:
            typer.echo(f"No seed in common with it: {'; '.join(unpaired)}.")


def _labels_only(group: Group, metric: str) -> dict[int, float]:
    """The same number of each run's better model trained without clients, by seed, where there are such."""
    from semifl.records.verdict import labels_only

    found = {run.seed: labels_only(run.outcome, metric) for run in group.runs}
    return {seed: value for seed, value in found.items() if value is not None}


def _plain(difference: Difference) -> dict[str, float | None]:
    """JSON has no infinity: the interval of a single seed is null."""
    return {key: value if math.isfinite(value) else None for key, value in difference._asdict().items()}


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

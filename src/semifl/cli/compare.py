"""`semifl compare`: runs side by side, seed by seed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semifl.errors import UserError

if TYPE_CHECKING:
    from semifl.report.comparison import Difference


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Finished run directories.")],
    metric: Annotated[str, typer.Option("--metric", help="A number of result.json.")] = "accuracy",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Mean over seeds for each setting, and paired differences from the first with 95 % intervals."""
    from semifl.report.comparison import paired
    from semifl.report.finished import finished_run, groups

    found = groups([finished_run(path) for path in dict.fromkeys(runs)])
    values = {
        name: {run.seed: _number(run.result, metric, run.path) for run in members} for name, members in found.items()
    }
    first = next(iter(values))
    differences = {name: paired(each, values[first]) for name, each in values.items() if name != first}
    if as_json:
        plain = {name: each._asdict() for name, each in differences.items() if each}
        facts = {name: {"values": each, "difference": plain.get(name)} for name, each in values.items()}
        typer.echo(json.dumps({"metric": metric, "against": first, "settings": facts}))
        return
    _print(values, differences, metric, first)


def _print(
    values: dict[str, dict[int, float]], differences: dict[str, Difference | None], metric: str, first: str
) -> None:
    from semifl.report.comparison import difference_text, summary
    from semifl.report.markdown import markdown_table

    lines = [[name, summary(each), difference_text(differences.get(name))] for name, each in values.items()]
    typer.echo(markdown_table(["settings", f"{metric}: mean (sd, n)", "difference [95 % interval]"], lines))
    if len(values) > 1:
        unpaired = [name for name in values if name != first and differences[name] is None]
        typer.echo(f"\nDifferences are from {first!r}, seed by seed.")
        if unpaired:
            typer.echo(f"No seed in common with it: {'; '.join(unpaired)}.")


def _number(result: dict[str, object], metric: str, path: Path) -> float:
    value = result.get(metric)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        numbers = [key for key, each in result.items() if isinstance(each, (int, float)) and not isinstance(each, bool)]
        raise UserError(f"{path} has no number {metric!r}; it has {', '.join(numbers)}")
    return float(value)

"""`semifl show`: a preset or file with every value written out, or the outcome of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from semifl.cli import options


def command(
    what: Annotated[str, typer.Argument(metavar="PRESET|FILE|RUN", help="A preset, a TOML file or a run directory.")],
    settings: options.Settings = None,
) -> None:
    """Show a configuration with every value written out, or the outcome of a run."""
    if Path(what).is_dir():
        _show_run(Path(what))
        return
    from semifl.experiments import presets, toml

    if not Path(what).is_file():
        typer.echo(f"# {presets.find(what).about}")
    typer.echo(toml.dumps(options.load(what, settings).table()), nl=False)


def _show_run(directory: Path) -> None:
    from semifl.experiments import toml
    from semifl.experiments.records import RunDirectory
    from semifl.experiments.soundness import is_round

    run = RunDirectory(directory)
    config = run.config()
    rounds, result = run.rounds(), run.result()
    typer.echo(toml.dumps(config.table()))
    if result:
        typer.echo(json.dumps(result, indent=1))
    else:
        last = f", accuracy {rounds[-1]['accuracy']:.1f} %" if rounds and is_round(rounds[-1]) else ""
        typer.echo(
            f"unfinished: {len(rounds)} of {config.run.rounds} rounds{last}; go on with: semifl resume {directory}"
        )

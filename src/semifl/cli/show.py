"""`semifl show`: a preset or file with every value written out, or the outcome of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from semifl.cli import options
from semifl.words import counted, resume_command


def command(
    what: Annotated[str, typer.Argument(metavar="PRESET|FILE|RUN", help="A preset, a TOML file or a run directory.")],
    settings: options.Settings = None,
) -> None:
    """Show a configuration with every value written out, or the outcome of a run."""
    if Path(what).is_dir():
        _show_run(Path(what))
        return
    from semifl import toml
    from semifl.studies import presets

    text = toml.dumps(options.load(what, settings).table())
    about = "" if Path(what).is_file() else f"# {presets.find(what).about}\n"
    typer.echo(about + text, nl=False)


def _show_run(directory: Path) -> None:
    from semifl import toml
    from semifl.configuration.config import of_run
    from semifl.records.directory import RunDirectory
    from semifl.records.metrics import WORDS
    from semifl.records.record import number

    run = RunDirectory(directory)
    config = of_run(run)
    rounds, result = run.rounds(), run.outcome()
    typer.echo(toml.dumps(config.table()))
    if result:
        typer.echo(json.dumps(result, indent=1))
    else:
        metric = config.run.metric
        tested = [value for each in rounds if (value := number(each.get(metric))) is not None]
        last = f", {WORDS[metric]} {tested[-1]:.1f} %" if tested else ""
        typer.echo(
            f"unfinished: {len(rounds)} of {counted(config.run.rounds, 'round')}{last}; "
            f"go on with: {resume_command(directory)}"
        )

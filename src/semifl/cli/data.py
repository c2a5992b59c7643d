"""`semifl data`: fetch a data set, or see where it is looked for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from semifl.errors import UserError

app = typer.Typer(help="Fetch data sets.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="The data set, e.g. cifar10.")]


@app.command("get")
def get(
    name: Name,
    root: Annotated[Path | None, typer.Option("--root", help="Where to put it [default: the data cache].")] = None,
) -> None:
    """Download a data set, resuming what was begun, and verify it."""
    from semifl.data.files import fetch

    source = _source(name)
    if not hasattr(source, "FILES"):
        raise UserError(f"{name} needs no download")
    typer.echo(f"{name} is complete in {fetch(source, str(root or ''))}")


@app.command("where")
def where(name: Name) -> None:
    """Print the folder in which a data set is looked for."""
    from semifl.data.files import place

    _source(name)
    typer.echo(place(name, ""))


def _source(name: str) -> type:
    from semifl import registry
    from semifl.configuration.config import DATASETS

    source: type = registry.find(DATASETS, name, "the data set")
    return source

"""`semifl trust`: let a model file or run directory that somebody else made run the code that it names."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from semifl.errors import UserError


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a model.safetensors.")],
) -> None:
    """Let a run or a model from elsewhere import the code that it names, from now on."""
    from semifl.configuration.code import code_in, recorded_folders, remember_code
    from semifl.configuration.config import read
    from semifl.trained.modelfile import model_table

    files = [run / "config.toml", run / "model.safetensors"] if run.is_dir() else [run]
    there = [path for path in files if path.is_file()]
    if not there:
        raise UserError(f"{run} is neither a run directory nor a model file")
    tables = [read(path) if path.suffix == ".toml" else model_table(path) for path in there]
    folders = recorded_folders(run)
    names = sorted(
        {
            f"{key} = {name}{f' from {folders[name]}' if name in folders else ''}"
            for table in tables
            for key, name in code_in(table).items()
        }
    )
    if not names:
        typer.echo(f"{run} names no code: there is nothing to trust")
        return
    try:
        for table in tables:
            remember_code(table, folders)
    except OSError as error:
        raise UserError(f"cannot remember what you trust, in {error.filename}: {error.strerror}") from error
    for name in names:
        typer.echo(f"trusted: {name}")

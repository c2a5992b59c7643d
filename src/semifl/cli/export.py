"""`semifl export`: a trained model for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from semifl.errors import UserError


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a model.safetensors.")],
    to: Annotated[Literal["onnx", "safetensors", "torchscript"], typer.Option("--to", help="The format.")] = "onnx",
    out: Annotated[Path | None, typer.Option("-o", "--out", help="The file [default: model.* in the run].")] = None,
) -> None:
    """Write a trained model with its preprocessing inside, and check the file against the original."""
    from semifl.cli.display import warn_of_faults
    from semifl.trained.export import ENDINGS, export
    from semifl.trained.prediction import find_model

    model = find_model(run, "cpu")
    source = run / "model.safetensors" if run.is_dir() else run
    path = out or source.with_name(f"model{ENDINGS[to]}")
    if path.exists() and path.samefile(source):
        typer.echo(f"{path} is that file already")
        return
    try:
        difference = export(model, source, to, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
    warn_of_faults(model)
    facts = model.facts
    typer.echo(f"wrote {path} ({path.stat().st_size / 1e6:.1f} MB)")
    if to != "safetensors":
        typer.echo(f"in:  pictures, uint8 [n, {facts.channels}, {facts.size}, {facts.size}], values 0–255")
        typer.echo(f"out: probabilities [n, {facts.classes}]; checked: they differ by {difference:.0e} at most")

"""`semifl predict`: what a trained model says of pictures."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from semifl.cli import options
from semifl.errors import UserError


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a model.safetensors.")],
    pictures: Annotated[list[Path], typer.Argument(metavar="PICTURES...", help="Files, or folders of them.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values with a header.")] = False,
    device: options.Device = "auto",
) -> None:
    """Class and confidence of each picture."""
    from semifl.trained.prediction import find_model, predict

    for path in pictures:
        if not path.exists():
            raise UserError(f"there is no picture or folder {path}")
    model = find_model(run, options.device_name(device))
    predictions = predict(model, _files(pictures))
    if as_csv:
        unread = _write_csv(predictions)
    else:
        unread = 0
        for each in predictions:
            unread += bool(each.problem)
            typer.echo(json.dumps({**each._asdict(), "path": str(each.path)}) if as_json else _line(each))
    if unread:
        raise UserError(f"{unread} of the files could not be read as pictures")


def _line(prediction: Any) -> str:
    if prediction.problem:
        return f"{prediction.path}\t?\t{prediction.problem}"
    return f"{prediction.path}\t{prediction.label}\t{prediction.confidence:.3f}"


def _write_csv(predictions: Iterable[Any]) -> int:
    writer = csv.writer(sys.stdout)
    writer.writerow(["path", "class", "confidence", "problem"])
    unread = 0
    for each in predictions:
        unread += bool(each.problem)
        writer.writerow([each.path, each.label, f"{each.confidence:.6f}" if each.label else "", each.problem])
    return unread


def _files(pictures: list[Path]) -> Iterator[Path]:
    from semifl.data.pictures import pictures_below

    for path in pictures:
        if path.is_dir():
            yield from pictures_below(path)
        else:
            yield path

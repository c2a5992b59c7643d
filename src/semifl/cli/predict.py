"""`semifl predict`: what a trained model says of pictures."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semifl.cli import options
from semifl.errors import UserError
from semifl.words import counted, printable, shown

if TYPE_CHECKING:
    from semifl.trained.modelfile import TrainedModel
    from semifl.trained.prediction import Prediction, Rule

CHOSEN = "chosen"  # the word for the threshold that held-out labels called for


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a model.safetensors.")],
    pictures: Annotated[list[Path], typer.Argument(metavar="PICTURES...", help="Files, or folders of them.")],
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values with a header.")] = False,
    probabilities: Annotated[bool, typer.Option("--probabilities", help="Also the probability of each class.")] = False,
    threshold: Annotated[
        str, typer.Option("--threshold", help="Of two classes: a probability, or 'chosen' [default: the likelier].")
    ] = "",
    device: options.Device = "auto",
) -> None:
    """Class and confidence of each picture."""
    from semifl.cli.display import warn_of_faults
    from semifl.trained.prediction import find_model, predict

    for path in pictures:
        if not path.exists():
            raise UserError(f"there is no picture or folder {path}")
    if as_json and as_csv:
        raise UserError("--json and --csv do not go together: choose one")
    model = find_model(run, options.device_name(device))
    names = model.facts.class_names if probabilities else ()
    rule, files = _rule(model, threshold), _files(pictures)
    first = next(files, None)
    if first is None:
        raise UserError(f"{', '.join(map(str, pictures))} holds no pictures")
    warn_of_faults(model)
    predictions = predict(model, chain([first], files), rule)
    write = _write_csv if as_csv else _write_json if as_json else _write_lines
    unread = write(predictions, names)
    if unread:
        sentence = f"{counted(unread, 'file')} could not be read as pictures"
        if not _may_skip(run):
            raise UserError(sentence)
        typer.echo(f"warning: {sentence}", err=True)


def _may_skip(run: Path) -> bool:
    """Whether the run was told to leave out what cannot be read; then so is this."""
    from semifl.records.directory import RunDirectory

    data = RunDirectory(run).config().get("data") if run.is_dir() else None
    return isinstance(data, dict) and data.get("unreadable") == "skip"


def _rule(model: TrainedModel, threshold: str) -> Rule | None:
    from semifl.trained.assessment import chosen_threshold, positive_place
    from semifl.trained.prediction import Rule

    if not threshold:
        return None
    if len(model.facts.class_names) != 2:
        raise UserError(f"--threshold is for two classes, and this model knows {len(model.facts.class_names)}")
    try:
        wanted = None if threshold == CHOSEN else float(threshold)
    except ValueError:
        wanted = -1.0
    if wanted is not None and not 0 <= wanted <= 1:
        raise UserError(f"--threshold {threshold!r} is neither a probability between 0 and 1 nor 'chosen'")
    return Rule(positive_place(model), chosen_threshold(model, wanted))


def _columns(each: Prediction, names: Iterable[str]) -> dict[str, Any]:
    """The same names in CSV and JSON; what is not known of a file that could not be read is left empty."""
    known = dict(zip(names, each.probabilities, strict=False))
    return {
        "path": shown(each.path),
        "class": each.label,
        "confidence": round(each.confidence, 6) if each.label else None,
        **{f"probability_{name}": round(known[name], 6) if known else None for name in names},
        "problem": each.problem,
    }


def _write_lines(predictions: Iterable[Prediction], names: tuple[str, ...]) -> int:
    unread = 0
    for each in predictions:
        unread += bool(each.problem)
        if each.problem:
            typer.echo("\t".join(map(printable, [each.path, "?", each.problem])))
        else:
            shares = (f"{name} {share:.3f}" for name, share in zip(names, each.probabilities, strict=False))
            typer.echo("\t".join(map(printable, [each.path, each.label, f"{each.confidence:.3f}", *shares])))
    return unread


def _write_json(predictions: Iterable[Prediction], names: tuple[str, ...]) -> int:
    unread = 0
    for each in predictions:
        unread += bool(each.problem)
        typer.echo(json.dumps(_columns(each, names)))
    return unread


def _write_csv(predictions: Iterable[Prediction], names: tuple[str, ...]) -> int:
    columns = ["path", "class", "confidence", *(f"probability_{name}" for name in names), "problem"]
    writer = csv.DictWriter(sys.stdout, columns)
    writer.writerow({name: printable(name) for name in columns})
    unread = 0
    for each in predictions:
        unread += bool(each.problem)
        writer.writerow({key: printable(value) for key, value in _columns(each, names).items() if value is not None})
    return unread


def _files(pictures: list[Path]) -> Iterator[Path]:
    from semifl.data.pictures import pictures_below

    for path in pictures:
        if path.is_dir():
            yield from pictures_below(path)
        else:
            yield path

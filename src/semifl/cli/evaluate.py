"""`semifl evaluate`: how well a trained model does on labeled pictures."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semifl.cli import options
from semifl.errors import UserError
from semifl.records.metrics import METRICS, WORDS, said_probability
from semifl.words import counted

if TYPE_CHECKING:
    from semifl.trained.assessment import Assessment

COLUMNS = ("precision", "recall", "specificity", "f1")
WIDEST = 20  # classes whose confusion matrix still fits a terminal


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a model.safetensors.")],
    data: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DATA]", help="A folder <class>/*, or a CSV file,label [default: the run's own test pictures]."
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option("--threshold", min=0.0, max=1.0, help="Of two classes: [default: the model's own, or 0.5]."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    device: options.Device = "auto",
) -> None:
    """Accuracy, AUC, F1, calibration, numbers by class and the confusion matrix on labeled pictures."""
    from semifl.cli.display import warn_of_faults
    from semifl.learning.metrics import EVEN
    from semifl.trained.assessment import assess
    from semifl.trained.prediction import find_model

    model = find_model(run, options.device_name(device))
    images, labels = _from_run(run, model) if data is None else _from_folder(data, model)
    found = assess(model, images, labels, threshold)
    if as_json:
        typer.echo(json.dumps(found.facts()))
        return
    known, ends = found.numbers(), found.intervals()
    said = {name: f"{_percent(value)} {ends.get(name, '')}".rstrip() for name, value in known.items()}
    numbers = (f"{WORDS[name]} {said[name]}" for name in (*METRICS, "calibration_error"))
    how = ", by the likelier class:" if found.decision and found.decision.threshold != EVEN else ","
    warn_of_faults(model)
    typer.echo(f"{counted(found.score.count, 'picture')}{how} {', '.join(numbers)}")
    if found.decision:
        typer.echo(
            f"{found.positive} is said from a probability of {said_probability(found.decision.threshold)} on: "
            f"sensitivity {said['sensitivity']}, specificity {said['specificity']}"
        )
    _print_classes(found)
    if len(found.classes) <= WIDEST:
        _print_confusion(found)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f} %"


def _print_classes(found: Assessment) -> None:
    from semifl.report.tables import markdown_table

    lines = [
        [name, str(each.pictures), *(_percent(getattr(each, column)).removesuffix(" %") for column in COLUMNS)]
        for name, each in found.classes.items()
    ]
    header = ["class", "pictures", *(f"{column.replace('f1', 'F1')} %" for column in COLUMNS)]
    typer.echo(f"\n{markdown_table(header, lines)}")


def _print_confusion(found: Assessment) -> None:
    from semifl.report.tables import markdown_table

    rows = zip(found.classes, found.confusion.tolist(), strict=True)
    lines = [[name, *(str(count) if count else "·" for count in counts)] for name, counts in rows]
    typer.echo("\nEach row a true class, each column what the model said:\n")
    typer.echo(markdown_table(["", *found.classes], lines))


def _from_run(run: Path, model: Any) -> tuple[Any, Any]:
    from semifl.configuration.config import of_run
    from semifl.records.directory import RunDirectory

    if not run.is_dir():
        raise UserError(f"{run} is a model without a run directory: say which folder of pictures to evaluate it on")
    data = of_run(RunDirectory(run)).data.thing.load()
    now, then = data.facts, model.facts
    for what, here, known in (
        ("classes", ", ".join(now.class_names), ", ".join(then.class_names)),
        ("channels", now.channels, then.channels),
    ):
        if here != known:
            raise UserError(
                f"the pictures of {run} have changed since it was trained: their {what} are now {here}, "
                f"and the model knows {known}; name a folder of pictures to evaluate it on"
            )
    return data.test_images, data.test_labels


def _from_folder(folder: Path, model: Any) -> tuple[Any, Any]:
    from semifl.data.pictures import pictures_below

    names = model.facts.class_names
    if folder.is_file() and folder.suffix.lower() == ".csv":
        return _decoded(_listed(folder, names), model)
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}")
    folders = [path for path in sorted(folder.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    # macOS spells "ä" as two characters, others as one; they are the same name.
    given = {unicodedata.normalize("NFC", path.name): path for path in folders}
    unknown = [name for name in given if name not in names]
    if unknown or not given:
        what = f"class {unknown[0]!r}, which the model does not know" if unknown else "no folders named by class"
        raise UserError(f"{folder} has {what}; the model knows {', '.join(names)}")
    pairs = [(path, names.index(name)) for name in given for path in pictures_below(given[name])]
    if not pairs:
        raise UserError(f"{folder} holds no pictures")
    return _decoded(pairs, model)


def _listed(file: Path, names: tuple[str, ...]) -> list[tuple[Path, int]]:
    """The labeled pictures of a CSV file; their names are relative to its folder."""
    from semifl.data.listing import part_of, read_rows, spelled_as_there

    everything = read_rows(file, file.parent)
    rows = [row for row in everything if row.label]
    if tests := [row for row in rows if part_of(row) == "test"]:  # the others may have been learned from
        rows = tests
        if len(tests) < len(everything):
            typer.echo(f"{len(tests)} of {counted(len(everything), 'line')}: those for test", err=True)
    unknown = [row for row in rows if row.label not in names]
    if unknown:
        raise UserError(
            f"{file}, line {unknown[0].line}, has class {unknown[0].label!r}, which the model does not know; "
            f"it knows {', '.join(names)}"
        )
    if not rows:
        raise UserError(f"{file} names no labeled picture")
    return [(spelled_as_there(file.parent, row.file), names.index(row.label)) for row in rows]


def _decoded(pairs: list[tuple[Path, int]], model: Any) -> tuple[Any, Any]:
    import torch

    from semifl.data.pictures import decode

    images = [decode(path, model.facts.size, model.facts.channels, model.facts.bits) for path, _ in pairs]
    return torch.stack(images), torch.tensor([label for _, label in pairs])

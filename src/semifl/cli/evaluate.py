"""`semifl evaluate`: how well a trained model does on labeled pictures."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from semifl.cli import options
from semifl.errors import UserError

if TYPE_CHECKING:
    from semifl.trained.assessment import Assessment

WIDEST = 20  # classes whose confusion matrix still fits a terminal


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a model.safetensors.")],
    data: Annotated[
        Path | None, typer.Argument(metavar="[DATA]", help="A folder <class>/* [default: the run's own test pictures].")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    device: options.Device = "auto",
) -> None:
    """Accuracy, precision and recall per class, the confusion matrix and calibration on labeled pictures."""
    from semifl.trained.assessment import assess
    from semifl.trained.prediction import find_model

    model = find_model(run, options.device_name(device))
    images, labels = _from_run(run) if data is None else _from_folder(data, model)
    found = assess(model, images, labels)
    if as_json:
        typer.echo(json.dumps(found.facts()))
        return
    score = found.score
    typer.echo(
        f"{score.count} pictures, accuracy {score.accuracy:.2f} %, balanced accuracy {score.balanced_accuracy:.2f} %, "
        f"calibration error {found.calibration_error:.1f} %"
    )
    _print_classes(found)
    if len(found.classes) <= WIDEST:
        _print_confusion(found)


def _print_classes(found: Assessment) -> None:
    from semifl.report.markdown import markdown_table

    def percent(value: float | None) -> str:
        return "–" if value is None else f"{value:.1f}"

    lines = [
        [name, str(each.pictures), percent(each.precision), percent(each.recall)]
        for name, each in found.classes.items()
    ]
    typer.echo(f"\n{markdown_table(['class', 'pictures', 'precision %', 'recall %'], lines)}")


def _print_confusion(found: Assessment) -> None:
    from semifl.report.markdown import markdown_table

    rows = zip(found.classes, found.score.confusion.tolist(), strict=True)
    lines = [[name, *(str(count) if count else "·" for count in counts)] for name, counts in rows]
    typer.echo("\nEach row a true class, each column what the model said:\n")
    typer.echo(markdown_table(["", *found.classes], lines))


def _from_run(run: Path) -> tuple[Any, Any]:
    from semifl.configuration.config import of_run
    from semifl.records.directory import RunDirectory

    if not run.is_dir():
        raise UserError(f"{run} is a model without a run directory: say which folder of pictures to evaluate it on")
    data = of_run(RunDirectory(run)).data.thing.load()
    return data.test_images, data.test_labels


def _from_folder(folder: Path, model: Any) -> tuple[Any, Any]:
    import torch

    from semifl.data.pictures import decode, pictures_below

    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}")
    names = model.facts.class_names
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
    images = [decode(path, model.facts.size, model.facts.channels) for path, _ in pairs]
    return torch.stack(images), torch.tensor([label for _, label in pairs])

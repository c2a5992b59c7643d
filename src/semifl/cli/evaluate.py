"""`semifl evaluate`: how well a trained model does on labeled pictures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from semifl.cli import options
from semifl.errors import UserError


def command(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory, or a model.safetensors.")],
    data: Annotated[
        Path | None, typer.Argument(metavar="[DATA]", help="A folder <class>/* [default: the run's own test pictures].")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    device: options.Device = "auto",
) -> None:
    """Accuracy, balanced accuracy and accuracy per class on labeled pictures."""
    from semifl.experiments.prediction import find_model, grade

    model = find_model(run, options.device_name(device))
    images, labels = _from_run(run) if data is None else _from_folder(data, model)
    score = grade(model, images, labels)
    per_class = score.confusion.sum(dim=1)
    classes = {
        name: 100 * int(score.confusion[label, label]) / int(per_class[label])
        for label, name in enumerate(model.facts.class_names)
        if int(per_class[label])
    }
    facts = {
        "pictures": score.count,
        "accuracy": score.accuracy,
        "balanced_accuracy": score.balanced_accuracy,
        "loss": score.loss,
    }
    if as_json:
        typer.echo(json.dumps({**facts, "classes": classes, "confusion": score.confusion.tolist()}))
        return
    typer.echo(
        f"{score.count} pictures, accuracy {score.accuracy:.2f} %, balanced accuracy {score.balanced_accuracy:.2f} %"
    )
    for name, accuracy in classes.items():
        typer.echo(f"  {name}: {accuracy:.1f} %")


def _from_run(run: Path) -> tuple[Any, Any]:
    from semifl.experiments.records import RunDirectory

    if not run.is_dir():
        raise UserError(f"{run} is a model without a run directory: say which folder of pictures to evaluate it on")
    data = RunDirectory(run).config().data.thing.load()
    return data.test_images, data.test_labels


def _from_folder(folder: Path, model: Any) -> tuple[Any, Any]:
    import torch

    from semifl.data.pictures import decode, pictures_below

    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}")
    names = model.facts.class_names
    given = sorted(path.name for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    unknown = [name for name in given if name not in names]
    if unknown or not given:
        what = f"class {unknown[0]!r}, which the model does not know" if unknown else "no folders named by class"
        raise UserError(f"{folder} has {what}; the model knows {', '.join(names)}")
    pairs = [(path, names.index(name)) for name in given for path in pictures_below(folder / name)]
    if not pairs:
        raise UserError(f"{folder} holds no pictures")
    images = [decode(path, model.facts.size, model.facts.channels) for path, _ in pairs]
    return torch.stack(images), torch.tensor([label for _, label in pairs])

"""A trained model on pictures: classes for a person's own files, scores for a labeled data set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from semifl.data.augment import normalize
from semifl.data.pictures import UnreadableError, decode
from semifl.errors import UserError
from semifl.learning.evaluation import BLOCK, slices
from semifl.learning.targets import pseudo_labels
from semifl.trained.modelfile import TrainedModel, load_model


class Prediction(NamedTuple):
    path: Path
    label: str  # empty if the picture could not be read
    confidence: float
    problem: str


def find_model(run: Path, device: str) -> TrainedModel:
    """The model of a run directory, or a model file by itself."""
    if run.is_dir():
        if not (run / "model.safetensors").is_file():
            if not (run / "rounds.jsonl").is_file():
                raise UserError(f"{run} holds no model.safetensors: it is not a run that has been trained")
            raise UserError(f"{run} holds no model.safetensors: the run is not finished (semifl resume {run})")
        run = run / "model.safetensors"
    return load_model(run, device)


def predict(model: TrainedModel, paths: Iterable[Path]) -> Iterator[Prediction]:
    """Class and confidence of each picture, in order, a block of pictures at a time."""
    remaining = iter(paths)
    while chunk := list(islice(remaining, BLOCK)):
        decoded, problems = dict[Path, Tensor](), dict[Path, str]()
        for path in chunk:
            try:
                decoded[path] = decode(path, model.facts.size, model.facts.channels)
            except UnreadableError as error:
                problems[path] = str(error)
        answers = _classify(model, decoded)
        for path in chunk:
            label, confidence = answers.get(path, ("", 0.0))
            yield Prediction(path, label, confidence, problems.get(path, ""))


def _classify(model: TrainedModel, pictures: dict[Path, Tensor]) -> dict[Path, tuple[str, float]]:
    if not pictures:
        return {}
    pseudo = pseudo_labels(logits_of(model, torch.stack(list(pictures.values()))))
    names = [model.facts.class_names[label] for label in pseudo.labels.tolist()]
    return dict(zip(pictures, zip(names, pseudo.confidence.tolist(), strict=True), strict=True))


def logits_of(model: TrainedModel, images: Tensor) -> Tensor:
    device = model.network.device
    with torch.inference_mode():
        parts = [normalize(images[part], model.facts).to(device) for part in slices(len(images), model.facts.size)]
        return torch.cat([model.network(part) for part in parts]).cpu()

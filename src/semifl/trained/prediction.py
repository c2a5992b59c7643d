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
from semifl.words import resume_command


class Prediction(NamedTuple):
    path: Path
    label: str  # empty if the picture could not be read
    confidence: float  # the probability of the label
    problem: str
    probabilities: tuple[float, ...]  # of every class; empty if the picture could not be read


def find_model(run: Path, device: str) -> TrainedModel:
    """The model of a run directory, or a model file by itself."""
    if run.is_dir():
        if not (run / "model.safetensors").is_file():
            if not (run / "rounds.jsonl").is_file():
                raise UserError(f"{run} holds no model.safetensors: it is not a run that has been trained")
            raise UserError(f"{run} holds no model.safetensors: the run is not finished ({resume_command(run)})")
        run = run / "model.safetensors"
    return load_model(run, device)


class Rule(NamedTuple):
    """How a label follows from probabilities: the likeliest, unless one class is said from a threshold on."""

    positive: int
    threshold: float

    def labels(self, probabilities: Tensor) -> Tensor:
        said = probabilities[:, self.positive] >= self.threshold
        return torch.where(said, self.positive, 1 - self.positive)  # there are two


def predict(model: TrainedModel, paths: Iterable[Path], rule: Rule | None = None) -> Iterator[Prediction]:
    """Class and probabilities of each picture, in order, a block of pictures at a time."""
    remaining = iter(paths)
    while chunk := list(islice(remaining, BLOCK)):
        decoded, problems = dict[Path, Tensor](), dict[Path, str]()
        for path in chunk:
            try:
                decoded[path] = decode(path, model.facts.size, model.facts.channels, model.facts.bits)
            except UnreadableError as error:
                problems[path] = str(error)
        answers = _classify(model, decoded, rule)
        for path in chunk:
            yield answers[path] if path in answers else Prediction(path, "", 0.0, problems[path], ())


def _classify(model: TrainedModel, pictures: dict[Path, Tensor], rule: Rule | None) -> dict[Path, Prediction]:
    if not pictures:
        return {}
    logits = logits_of(model, torch.stack(list(pictures.values())))
    shares = logits.softmax(dim=1)
    labels = rule.labels(shares) if rule else pseudo_labels(logits).labels
    answers = zip(pictures, labels.tolist(), shares.tolist(), strict=True)
    return {
        path: Prediction(path, model.facts.class_names[label], each[label], "", tuple(each))
        for path, label, each in answers
    }


def logits_of(model: TrainedModel, images: Tensor) -> Tensor:
    device = model.network.device
    with torch.inference_mode():
        parts = [normalize(images[part], model.facts).to(device) for part in slices(len(images), model.facts.size)]
        return torch.cat([model.network(part) for part in parts]).cpu()

"""predictions.npz: what the models of a run said of each test example, to compare them example by example."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from semifl.durable import replace_file
from semifl.errors import UserError
from semifl.intervals import Floats, Labels
from semifl.regular import LARGEST_TEXT, open_regular

NAME = "predictions.npz"
LABELS = "labels"


class ModelPredictions(NamedTuple):
    """The true classes [n] of the test examples and, by model, the probabilities [n, classes]."""

    labels: Labels
    models: dict[str, Floats]  # "model" is the one that model.safetensors holds


def write_predictions(path: Path, labels: Labels, models: Mapping[str, Floats]) -> None:
    """Write the file in one step; it holds plain arrays only."""

    def write(part: Path) -> None:
        with part.open("wb") as file:
            np.savez(file, allow_pickle=False, **{LABELS: labels, **models})

    replace_file(path, write)


def read_predictions(path: Path) -> ModelPredictions:
    """Read the file back; raise a UserError if it is missing or damaged."""
    try:
        with open_regular(path, LARGEST_TEXT) as file:
            with zipfile.ZipFile(file) as archive:
                if sum(each.file_size for each in archive.infolist()) > LARGEST_TEXT:
                    raise ValueError("it is too large")
            file.seek(0)
            with np.load(file, allow_pickle=False) as loaded:
                arrays: dict[str, Any] = {name: loaded[name] for name in loaded.files}
        labels = arrays.pop(LABELS)
        _check(labels, arrays)
    except FileNotFoundError as error:
        raise UserError(f"{path} is missing: the run is not finished, or an earlier version wrote it") from error
    except (OSError, ValueError, KeyError, EOFError, NotImplementedError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is damaged: remove it; the run's report and result.json do not need it") from error
    return ModelPredictions(labels, arrays)


def _check(labels: Any, models: Mapping[str, Any]) -> None:
    if labels.dtype != np.int64 or labels.ndim != 1 or not len(labels) or "model" not in models:
        raise ValueError("no labels, or no model")
    for each in models.values():
        if each.dtype != np.float64 or each.ndim != 2 or len(each) != len(labels):
            raise ValueError("probabilities of another form")
        if not np.allclose(each.sum(axis=1), 1, atol=1e-6) or labels.min() < 0 or labels.max() >= each.shape[1]:
            raise ValueError("no probabilities")

"""What training gives back: the model, the numbers, and a picture of how it went."""

from __future__ import annotations

import base64
import copy
import html
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from semifl.data.arrays import as_pictures, to_square
from semifl.data.dataset import Facts
from semifl.errors import UserError
from semifl.intervals import Interval, PairedDifference
from semifl.learning import batchnorm
from semifl.learning.evaluation import slices
from semifl.learning.network import Network
from semifl.learning.targets import pseudo_labels
from semifl.records.faults import Fault
from semifl.records.metrics import OF_A_MODEL, WORDS, metric_of, of_the_kept
from semifl.records.record import RoundRecord, Summary, number
from semifl.records.verdict import difference, faults, interval, labels_only, verdict, with_interval
from semifl.report.curves import draw_curves
from semifl.trained.export import ENDINGS, Target, export
from semifl.trained.modelfile import TrainedModel
from semifl.words import counted


class Predictions(NamedTuple):
    labels: Tensor  # int64, positions in `Result.class_names`
    confidences: Tensor  # float32, the probability that the model gives to the label


class Classifier(nn.Module):
    """A trained network that takes pictures as they are: uint8, or floats between 0 and 1, [n, channels, size, size].

    Normalisation is part of it. It returns logits; `network` is the trained module without normalisation.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, network: nn.Module, facts: Facts) -> None:
        super().__init__()
        for layer in batchnorm.layers(network).values():
            layer.track_running_stats = layer.num_batches_tracked is not None  # as its owner built it
        self.network = network
        self.class_names, self.channels, self.size = facts.class_names, facts.channels, facts.size
        self.register_buffer("mean", torch.tensor(facts.mean).view(1, -1, 1, 1))
        self.register_buffer("std", torch.tensor(facts.std).view(1, -1, 1, 1))
        self.eval()

    def forward(self, images: Tensor) -> Tensor:
        pixels = images.to(self.mean.dtype) / 255 if images.dtype == torch.uint8 else images
        logits: Tensor = self.network((pixels - self.mean) / self.std)
        return logits


@dataclass(frozen=True, repr=False)
class Result:
    """A finished run. A notebook shows it as a picture; `rounds` and `columns` are ready for pandas."""

    directory: Path
    model: Classifier
    summary: Summary  # as in result.json
    rounds: list[RoundRecord]  # as in rounds.jsonl

    @property
    def accuracy(self) -> float:
        """Of `model` on the test pictures, in percent, as are the numbers that follow."""
        return float(self._kept["accuracy"])

    @property
    def balanced_accuracy(self) -> float:
        """The mean over the classes of each one's own accuracy, in percent."""
        return float(self._kept["balanced_accuracy"])

    @property
    def auc(self) -> float | None:
        """Area under the ROC curve in percent, the mean over the classes; None of a run of an earlier version."""
        return self._of_model("auc")

    @property
    def f1(self) -> float | None:
        """The mean over the classes of their F1, in percent."""
        return self._of_model("f1")

    @property
    def calibration_error(self) -> float | None:
        """Mean gap between confidence and accuracy, in percent."""
        return self._of_model("calibration_error")

    @property
    def sensitivity(self) -> float | None:
        """Percent of the positive test pictures that are found at `decision_threshold`; None but for two classes."""
        return self._of_model("sensitivity")

    @property
    def specificity(self) -> float | None:
        """Percent of the negative test pictures that are left alone at `decision_threshold`."""
        return self._of_model("specificity")

    @property
    def decision_threshold(self) -> float | None:
        """Probability of the positive class from which on it is said: chosen on labels held out, or 0.5."""
        return self._of_model("decision_threshold")

    @property
    def labels_only_accuracy(self) -> float | None:
        """Accuracy of the better model trained without clients; None if none was trained."""
        return labels_only(self.summary, "accuracy")

    @property
    def labels_only(self) -> dict[str, float]:
        """All of these numbers for the better model trained without clients, by name; empty if none was trained."""
        found = {name: labels_only(self.summary, name) for name in OF_A_MODEL}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def intervals(self) -> dict[str, Interval]:
        """95 % intervals of the numbers of `model`, by name."""
        found = {name: interval(self.summary, f"{of_the_kept(self.summary)}{name}") for name in OF_A_MODEL}
        return {name: ends for name, ends in found.items() if ends is not None}

    @property
    def difference(self) -> PairedDifference | None:
        """How much better `model` is than the better labels-only model, in the metric that decides.

        Both answered the same test pictures. None if no labels-only model was trained.
        """
        return difference(self.summary, metric_of(self.summary))

    @property
    def faults(self) -> list[Fault]:
        """What is wrong with `model`, the gravest first, each with a remedy."""
        return faults(self.summary)

    @property
    def _kept(self) -> dict[str, Any]:
        """The numbers of the kept model: with labels held out that is the best on them, not the last one."""
        found, before = {**self.summary}, of_the_kept(self.summary)
        return {name: found.get(f"{before}{name}") for name in OF_A_MODEL}

    def _of_model(self, name: str) -> float | None:
        return number(self._kept[name])

    @property
    def class_names(self) -> tuple[str, ...]:
        return self.model.class_names

    @property
    def columns(self) -> dict[str, list[Any]]:
        """Every field of `rounds` as a list over the rounds."""
        return {key: [each.get(key) for each in self.rounds] for key in (self.rounds[0] if self.rounds else ())}

    def predict(self, pictures: Any) -> Predictions:
        """Label and confidence of each picture, given in any form that FederatedData takes, of any size."""
        pseudo = pseudo_labels(self._logits(pictures))
        return Predictions(pseudo.labels, pseudo.confidence)

    def probabilities(self, pictures: Any) -> Tensor:
        """The probability of every class for each picture: float32 [n, classes], in the order of `class_names`."""
        return self._logits(pictures).softmax(dim=1)

    def _logits(self, pictures: Any) -> Tensor:
        images = to_square(as_pictures(pictures, "pictures"), self.model.size, self.model.channels)
        was_training, device = self.model.training, self.model.mean.device
        self.model.eval()
        with torch.inference_mode():
            parts = [self.model(images[part].to(device)).cpu() for part in slices(len(images), self.model.size)]
        self.model.train(was_training)
        return torch.cat(parts)

    def export(self, to: Target = "onnx", out: str | Path | None = None) -> Path:
        """Write the model with its preprocessing inside, also one that only this program can build; gives the file.

        to    onnx, torchscript or safetensors
        out   the file; by default model.onnx, model.pt in the run directory
        """
        source = self.directory / "model.safetensors"
        if to not in ENDINGS:
            raise UserError(f"to = {to!r} is not one of {', '.join(ENDINGS)}")
        if out is None and not self.directory.is_dir():
            raise UserError(f"{self.directory} is gone: pass out=, the file to write")
        path = Path(out) if out is not None else source.with_name(f"model{ENDINGS[to]}")
        if path.exists() and path.samefile(source):
            return path
        model = self.model
        mean, std = (tuple(each.flatten().tolist()) for each in (model.mean.cpu(), model.std.cpu()))
        facts = Facts(model.class_names, mean, std, False, model.channels, model.size)
        network = Network(copy.deepcopy(model.network))  # a copy: exporting must not change what was trained
        export(TrainedModel(network, facts, {}), source, to, path)
        return path

    def __repr__(self) -> str:
        return f"Result({self._text()}, directory={str(self.directory)!r})"

    def _text(self) -> str:
        metric = metric_of(self.summary)
        reached = with_interval(self.summary, f"{of_the_kept(self.summary)}{metric}")
        first = " ".join(verdict(self.summary)).rstrip(".")
        return f"{first}; {WORDS[metric]} {reached}, {counted(len(self.rounds), 'round')}"

    def _repr_png_(self) -> bytes | None:
        try:
            return draw_curves(self.directory).read_bytes()
        except (UserError, OSError):  # the directory is gone, or may no longer be written to
            return None

    def _repr_html_(self) -> str:
        png = self._repr_png_()
        if png is None:
            return f"<p>{html.escape(repr(self))}</p>"
        picture = base64.b64encode(png).decode()
        words = html.escape(f"{self._text()}; all of it lies in {self.directory}")
        return f'<p>{words}</p><img src="data:image/png;base64,{picture}" alt="curves of the run">'

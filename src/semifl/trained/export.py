"""A trained model for other programs: raw pictures in, probabilities out, normalisation inside.

Every file that is written is read back and compared with the model it came from before it counts.
"""

from __future__ import annotations

import io
import json
import logging
import os
import shutil
import warnings
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from semifl.data.dataset import Facts
from semifl.durable import replace_file
from semifl.errors import UserError
from semifl.trained.modelfile import TrainedModel

Target = Literal["onnx", "safetensors", "torchscript"]
ENDINGS = {"onnx": ".onnx", "safetensors": ".safetensors", "torchscript": ".pt"}
FOREIGN_ENDINGS = tuple(ending for name, ending in ENDINGS.items() if name != "safetensors")  # no run writes these
TOLERANCE = 1e-4  # of a probability, between the model and its export


class Ready(nn.Module):
    """uint8 pictures [n, channels, size, size] in, probabilities [n, classes] out."""

    mean: Tensor
    std: Tensor

    def __init__(self, module: nn.Module, facts: Facts) -> None:
        super().__init__()
        self.module = module
        self.register_buffer("mean", torch.tensor(facts.mean)[:, None, None])
        self.register_buffer("std", torch.tensor(facts.std)[:, None, None])

    def forward(self, pictures: Tensor) -> Tensor:
        logits: Tensor = self.module((pictures.float() / 255 - self.mean) / self.std)
        return logits.softmax(dim=1)


def export(model: TrainedModel, source: Path, target: Target, path: Path) -> float:
    """Write the model and give the largest difference of a probability that was found in checking it."""
    if target == "safetensors":
        if not source.is_file():
            raise UserError(f"there is no model file {source}")
        replace_file(path, partial(_copy, source))
        return 0.0
    ready = Ready(model.network.module, model.facts).cpu().eval()
    pictures = _examples(model.facts)
    with torch.inference_mode():
        expected = ready(pictures).numpy()
    about = {"classes": list(model.facts.class_names), "size": model.facts.size, "channels": model.facts.channels}
    write, run = (_write_onnx, _run_onnx) if target == "onnx" else (_write_torchscript, _run_torchscript)
    difference = 0.0

    def write_and_check(part: Path) -> None:
        nonlocal difference
        write(ready, pictures, about, part)
        difference = float(np.abs(run(part, pictures) - expected).max())
        if not difference <= TOLERANCE:
            raise UserError(f"the exported model differs from the original by {difference:.1e}, so it was not written")

    replace_file(path, write_and_check)
    return difference


def _copy(source: Path, path: Path) -> None:
    shutil.copyfile(source, path)


def _examples(facts: Facts) -> Tensor:
    """Three pictures of noise; the graph must take any number."""
    shape = (3, facts.channels, facts.size, facts.size)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def _write_onnx(ready: Ready, pictures: Tensor, about: dict[str, Any], path: Path) -> None:
    try:
        import onnx
        import onnxscript  # noqa: F401  (what the exporter is written in)
    except ImportError as error:
        raise UserError("ONNX needs the extra packages: pip install 'semifl[export]'") from error
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # it wonders about packages we do not use
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            ready,
            (pictures,),
            dynamo=True,
            verbose=False,
            dynamic_shapes={"pictures": {0: torch.export.Dim("n")}},
            input_names=["pictures"],
            output_names=["probabilities"],
        )
    assert program is not None
    proto = program.model_proto
    onnx.helper.set_model_props(proto, {"semifl": json.dumps(about)})
    path.write_bytes(proto.SerializeToString())


def _run_onnx(path: Path, pictures: Tensor) -> np.ndarray:
    try:
        import onnxruntime
    except ImportError as error:
        raise UserError("ONNX needs the extra packages: pip install 'semifl[export]'") from error
    # As many pictures as the graph was made with, and one: the number must be free.
    session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    whole, first = (session.run(None, {"pictures": part.numpy()})[0] for part in (pictures, pictures[:1]))
    return np.concatenate([first, whole[1:]])


def _write_torchscript(ready: Ready, pictures: Tensor, about: dict[str, Any], path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(ready, (pictures,))  # type: ignore[no-untyped-call]
        content = io.BytesIO()  # torch's own words for a place that cannot be written are not for people
        torch.jit.save(traced, content, _extra_files={"semifl.json": json.dumps(about)})
    path.write_bytes(content.getvalue())


def _run_torchscript(path: Path, pictures: Tensor) -> np.ndarray:
    loaded = torch.jit.load(os.fspath(path))  # type: ignore[no-untyped-call]
    with torch.inference_mode():
        return np.concatenate([loaded(pictures[:1]).numpy(), loaded(pictures).numpy()[1:]])

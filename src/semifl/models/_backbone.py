"""A backbone on disk: a folder with config.json, the weights as .safetensors, and how its pictures were prepared.

Nothing here reads a pickle, runs code that came with the weights or asks the network: what is not there is told in one
sentence.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from semifl import machine
from semifl.errors import UserError
from semifl.parsing import from_json
from semifl.regular import open_regular, read_text, why

HOME = "backbones"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*)?")  # as hubs spell them
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # mean and std, where a backbone says nothing
USUAL_SIZE = 224
LARGEST_TEXT = 4 << 20  # bytes of a configuration
# What a configuration says of the program that wrote it, and not of the network.
ABOUT_THE_WRITER = ("transformers_version", "_name_or_path", "torch_dtype", "dtype", "architectures", "_commit_hash")


@dataclass(frozen=True)
class Backbone:
    """The folder of one backbone."""

    folder: Path

    @cached_property
    def config(self) -> dict[str, Any]:
        """What the network is; one that would bring its own code is refused."""
        config = self._json("config.json")
        if config is None:
            raise UserError(f"{self.folder} is no backbone: it has no config.json")
        if "auto_map" in config:
            raise UserError(f"{self.folder} would run code that came with it (auto_map in config.json): it is not used")
        if not isinstance(config.get("model_type"), str):
            raise UserError(f"{self.folder / 'config.json'} does not say which model_type it is")
        return config

    @cached_property
    def weights(self) -> list[Path]:
        found = sorted(self.folder.glob("*.safetensors"))
        if not found:
            raise UserError(
                f"{self.folder} has no .safetensors file: other kinds of weights may run code, and are not read"
            )
        return found

    @property
    def size(self) -> int:
        """Pixels on a side of the pictures that it was trained on."""
        told = self._processor
        for key in ("crop_size", "size"):
            side = told.get(key)
            if isinstance(side, dict):
                side = side.get("height") or side.get("shortest_edge")
            if isinstance(side, int) and side > 0:
                return side
        side = self.config.get("image_size")
        return side if isinstance(side, int) else USUAL_SIZE

    @property
    def normalisation(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and standard deviation of its pictures' three channels, of values in [0, 1]."""
        mean, std = (self._processor.get(key) for key in ("image_mean", "image_std"))
        if mean is None or std is None:
            return IMAGENET
        try:
            triples = tuple(float(value) for value in mean), tuple(float(value) for value in std)
        except (TypeError, ValueError):
            triples = (), ()
        if [len(each) for each in triples] != [3, 3] or min(triples[1]) <= 0:
            raise UserError(f"{self.folder / 'preprocessor_config.json'} has no mean and std of three channels")
        return triples

    @cached_property
    def hash(self) -> str:
        """Identifies it: SHA-256 of the weights, as `sha256sum` prints it of a single file, and what the network is."""
        digest = hashlib.sha256()
        for path in self.weights:
            try:
                with open_regular(path, machine.memory()) as file:
                    while block := file.read(1 << 20):
                        digest.update(block)
            except OSError as error:
                raise UserError(f"{path} cannot be read: {why(error)}") from error
        network = {key: value for key, value in self.config.items() if key not in ABOUT_THE_WRITER}
        form = hashlib.sha256(json.dumps(network, sort_keys=True).encode()).hexdigest()
        return f"{digest.hexdigest()}.{form[:8]}"

    @property
    def licence(self) -> str:
        """As its card says."""
        try:
            card = read_text(self.folder / "README.md", "replace", LARGEST_TEXT)
        except OSError:
            return "not stated"
        found = re.search(r"^license:\s*(\S+)", card, re.MULTILINE)
        return found.group(1) if found else "not stated"

    @cached_property
    def _processor(self) -> dict[str, Any]:
        return self._json("preprocessor_config.json") or {}

    def _json(self, name: str) -> dict[str, Any] | None:
        path = self.folder / name
        try:
            read = from_json(read_text(path, largest=LARGEST_TEXT))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise UserError(f"{path} cannot be read: {why(error)}") from error
        if not isinstance(read, dict):
            raise UserError(f"{path} is not a table of settings")
        return read


def find(source: str) -> Backbone:
    """The backbone of this name, or in this folder."""
    if not source:
        raise UserError("model.source is empty: name a backbone, such as efficientnet_lite0, or the folder of one")
    folder = Path(source).expanduser()
    if folder.is_dir():
        return Backbone(folder.absolute())
    kept = home(source)
    if kept.is_dir():
        return Backbone(kept)
    raise UserError(
        f"the backbone {source!r} is not here: run `semifl backbone get {source}`, "
        f"or put its config.json and model.safetensors into {kept}"
    )


def home(source: str) -> Path:
    """Where a backbone of this name is kept; a path stands for its last part."""
    return machine.home(HOME) / name_of(source).replace("/", "--")


def name_of(source: str) -> str:
    """What a backbone is called elsewhere: its name, or that of its folder."""
    return source if NAME.fullmatch(source) else Path(source).name

"""Named tensors and words about them in a .safetensors file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from safetensors import SafetensorError, safe_open
from torch import Tensor

from semifl import machine
from semifl.regular import open_regular


class TensorFile(NamedTuple):
    metadata: dict[str, str]
    tensors: dict[str, Tensor]


def read_tensors(path: Path) -> TensorFile:
    """All of it; an OSError or ValueError says why it cannot be had."""
    return _read(path, with_tensors=True)


def read_metadata(path: Path) -> dict[str, str]:
    """The words alone."""
    return _read(path, with_tensors=False).metadata


def _read(path: Path, with_tensors: bool) -> TensorFile:
    try:
        # safetensors takes a path only: that of the open file is what was looked at, whatever the name leads to by now.
        with open_regular(path, machine.memory()) as opened, safe_open(f"/dev/fd/{opened.fileno()}", "pt") as file:
            names: list[Any] = sorted(file.keys()) if with_tensors else []
            return TensorFile(dict(file.metadata() or {}), {name: file.get_tensor(name) for name in names})
    except (SafetensorError, AttributeError, KeyError, TypeError) as error:  # the latter for types that torch lacks
        raise ValueError(str(error)) from error

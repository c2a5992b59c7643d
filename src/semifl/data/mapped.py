"""Decoded pictures too many for memory: they lie in a file that the system maps, and reads as they are looked at.

Fifty thousand pictures of 224 × 224 pixels are 7.5 GB. Mapped, they cost the memory of what is in use, which the system
takes back when it needs it; worker processes map the same file instead of sharing a copy.
"""

from __future__ import annotations

import json
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from semifl.data.pictures import Decoded
from semifl.durable import replace_text
from semifl.regular import read_text

LARGE = 1 << 30  # bytes of pictures from which they are mapped
STRIDE = 64 << 20  # bytes that are looked at together


class Mapped(NamedTuple):
    """Where in which file a tensor lies: what travels to another process instead of it."""

    path: str
    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.uint8

    def open(self) -> Tensor:
        length = torch.Size(self.shape).numel() * self.dtype.itemsize
        return _open(Path(self.path))[self.offset : self.offset + length].view(self.dtype).view(self.shape)


_OPENED: dict[str, Tensor] = {}  # the files that this process has mapped, by path


def is_large(pictures: int, channels: int | None, size: int) -> bool:
    return pictures * (channels or 3) * size * size >= LARGE


def place_of(tensor: Tensor) -> Mapped | None:
    """Where a mapped tensor lies; None if it is in memory as others are."""
    for path, whole in _OPENED.items():
        offset = tensor.data_ptr() - whole.data_ptr()
        if 0 <= offset < len(whole) and tensor.is_contiguous():
            return Mapped(path, offset, tuple(tensor.shape), tensor.dtype)
    return None


def spilled(tensor: Tensor) -> Tensor:
    """The same numbers in a file of their own; `remove_spilled` when they are no longer needed."""
    with tempfile.NamedTemporaryFile(prefix="semifl-", suffix=".bin", delete=False) as file:
        tensor.numpy().tofile(file)
    return Mapped(file.name, 0, tuple(tensor.shape), tensor.dtype).open()


def remove_spilled(place: Mapped) -> None:
    _OPENED.pop(place.path, None)
    Path(place.path).unlink(missing_ok=True)


def recall_mapped(file: Path, fingerprint: str) -> Decoded | None:
    """What was kept under this fingerprint; None if there is nothing, something else, or something damaged."""
    try:
        facts = json.loads(read_text(_facts_of(file)))
        if facts["fingerprint"] != fingerprint or file.stat().st_size != torch.Size(facts["shape"]).numel():
            return None
        images = _open(file).view(facts["shape"])
        return Decoded(images, tuple(facts["skipped"])) if _checksum(images) == facts["crc32"] else None
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return None


def decode_mapped(file: Path, fingerprint: str, shape: tuple[int, ...], decode: Callable[[Tensor], Decoded]) -> Decoded:
    """Let `decode` fill a mapped file of this shape; what it leaves out is left out of the file too."""
    file.parent.mkdir(parents=True, exist_ok=True)
    _facts_of(file).unlink(missing_ok=True)  # first: until all is there, nothing counts
    _OPENED.pop(str(file), None)
    file.unlink(missing_ok=True)  # whoever has the old one open keeps it
    with file.open("wb") as new:
        new.truncate(torch.Size(shape).numel())
    filled = decode(_open(file).view(shape))
    if place_of(filled.images) is None:  # fewer channels after all: a third of the size, in memory
        file.unlink()
        _OPENED.pop(str(file), None)
        return filled
    kept = list(filled.images.shape)
    if kept != list(shape):
        with file.open("r+b") as whole:
            whole.truncate(torch.Size(kept).numel())
        _OPENED.pop(str(file), None)
        filled = filled._replace(images=_open(file).view(kept))
    facts: dict[str, Any] = {"fingerprint": fingerprint, "shape": kept, "skipped": list(filled.skipped)}
    replace_text(_facts_of(file), json.dumps({**facts, "crc32": _checksum(filled.images)}))
    return filled


def _open(file: Path) -> Tensor:
    """All bytes of a file; what is written to them is written to the file."""
    path = str(file)
    if path not in _OPENED or len(_OPENED[path]) != file.stat().st_size:
        _OPENED[path] = torch.from_file(path, shared=True, size=file.stat().st_size, dtype=torch.uint8)
    return _OPENED[path]


def _facts_of(file: Path) -> Path:
    return file.with_suffix(".json")


def _checksum(images: Tensor) -> int:
    number = 0
    for part in torch.split(images.view(-1), STRIDE):
        number = zlib.crc32(part.numpy().data, number)
    return number

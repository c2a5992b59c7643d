"""Decoded pictures too many for memory: they lie in a file that the system maps, and reads as they are looked at.

Fifty thousand pictures of 224 × 224 pixels are 7.5 GB. Mapped, they cost the memory of what is in use, which the system
takes back when it needs it; worker processes map the same file instead of sharing a copy.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from semifl.data.pictures import Decoded
from semifl.durable import replace_text
from semifl.regular import read_text

LARGE = 1 << 30  # bytes of pictures from which they are mapped
STRIDE = 64 << 20  # bytes that are looked at together
PART = ".part"  # of a file that is being filled


class Mapped(NamedTuple):
    """Where in which file a tensor lies: what travels to another process instead of it."""

    path: str
    offset: int
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.uint8

    def open(self) -> Tensor:
        length = torch.Size(self.shape).numel() * self.dtype.itemsize
        return _open(Path(self.path))[self.offset : self.offset + length].view(self.dtype).view(self.shape)


class Opened(NamedTuple):
    """A file that this process has mapped, and the handle whose lock tells others that it is in use."""

    content: Tensor
    handle: int


_OPENED: dict[str, Opened] = {}  # by path


def is_large(pictures: int, channels: int | None, size: int) -> bool:
    return pictures * (channels or 3) * size * size >= LARGE


def place_of(tensor: Tensor) -> Mapped | None:
    """Where a mapped tensor lies; None if it is in memory as others are."""
    for path, whole in _OPENED.items():
        offset = tensor.data_ptr() - whole.content.data_ptr()
        if 0 <= offset < len(whole.content) and tensor.is_contiguous():
            return Mapped(path, offset, tuple(tensor.shape), tensor.dtype)
    return None


def spilled(tensor: Tensor) -> Tensor:
    """The same numbers in a file of their own; `remove_spilled` when they are no longer needed."""
    with tempfile.NamedTemporaryFile(prefix="semifl-", suffix=".bin", delete=False) as file:
        tensor.numpy().tofile(file)
    return Mapped(file.name, 0, tuple(tensor.shape), tensor.dtype).open()


def remove_spilled(place: Mapped) -> None:
    _close(Path(place.path))
    Path(place.path).unlink(missing_ok=True)


def recall_mapped(file: Path, fingerprint: str) -> Decoded | None:
    """What was kept under this fingerprint; None if there is nothing, something else, or something damaged."""
    try:
        facts = json.loads(read_text(_facts_of(file)))
        kept = _state_of(file, fingerprint, facts["crc32"])
        if facts["fingerprint"] != fingerprint or kept.stat().st_size != torch.Size(facts["shape"]).numel():
            return None
        images = _open(kept).view(facts["shape"])
        decoded = Decoded(images, tuple(facts["skipped"]), int(facts["bits"]))
        return decoded if _checksum(images) == facts["crc32"] else None
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return None


def decode_mapped(file: Path, fingerprint: str, shape: tuple[int, ...], decode: Callable[[Tensor], Decoded]) -> Decoded:
    """Let `decode` fill a mapped file of this shape; what it leaves out is left out of the file too.

    Processes find pictures by the file's name, which therefore never gets other content: it says in which state the
    folder was and what came out of it. Until all is there the file has a name of its own.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=file.parent, prefix=f"{file.stem}-", suffix=PART, delete=False) as new:
        part = Path(new.name)
    try:
        os.truncate(part, torch.Size(shape).numel())
        filled = _all_of(part, decode(_open(part).view(shape)))
        crc32 = _checksum(filled.images)
        state = _state_of(file, fingerprint, crc32)
        _close(state)  # one of this name that was damaged
        part.replace(state)
        _OPENED[str(state)] = _OPENED.pop(str(part))
    except BaseException:
        _close(part)
        part.unlink(missing_ok=True)
        raise
    facts = {"fingerprint": fingerprint, "shape": list(filled.images.shape), "skipped": list(filled.skipped)}
    replace_text(_facts_of(file), json.dumps({**facts, "bits": filled.bits, "crc32": crc32}))
    _remove_unused(file, state)
    return filled


def _all_of(part: Path, filled: Decoded) -> Decoded:
    """The same with a file that holds these pictures and nothing else."""
    kept = filled.images.shape
    if place_of(filled.images) is None:  # fewer channels after all
        filled.images.numpy().tofile(part)
    else:
        os.truncate(part, kept.numel())
    return filled._replace(images=_open(part).view(kept))


def forget_mapped(file: Path) -> None:
    """Remove what is kept, unless a process still looks at it."""
    _facts_of(file).unlink(missing_ok=True)
    _remove_unused(file)


def _remove_unused(file: Path, current: Path | None = None) -> None:
    """What a folder's earlier states and broken-off attempts have left, unless a process still looks at it."""
    for old in file.parent.glob(f"{file.stem}*"):
        if old == current or old.suffix not in (file.suffix, PART):
            continue
        with contextlib.suppress(OSError), old.open("r+b") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            old.unlink()


def _open(file: Path) -> Tensor:
    """All bytes of a file; what is written to them is written to the file."""
    path, size = str(file), file.stat().st_size
    if path not in _OPENED or len(_OPENED[path].content) != size:
        _close(file)
        handle = os.open(path, os.O_RDONLY)
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        _OPENED[path] = Opened(torch.from_file(path, shared=True, size=size, dtype=torch.uint8), handle)
    return _OPENED[path].content


def _close(file: Path) -> None:
    """Forget a file; tensors that lie in it stay what they are."""
    if opened := _OPENED.pop(str(file), None):
        os.close(opened.handle)


def _facts_of(file: Path) -> Path:
    return file.with_suffix(".json")


def _state_of(file: Path, fingerprint: str, crc32: int) -> Path:
    return file.with_name(f"{file.stem}-{fingerprint[:16]}-{crc32:08x}{file.suffix}")


def _checksum(images: Tensor) -> int:
    number = 0
    for part in torch.split(images.view(-1), STRIDE):
        number = zlib.crc32(part.numpy().data, number)
    return number

"""Files that may not be what they seem: a pipe, a device or a folder in place of one neither hangs nor floods us."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

LARGEST_TEXT = 256 << 20  # bytes; beyond any run's own
LARGEST_PICTURE = 4 << 30  # bytes
KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def read_text(path: Path, errors: str = "strict", largest: int = LARGEST_TEXT) -> str:
    """The whole of a text in UTF-8; an OSError says in its `strerror` why it cannot be had."""
    return read_bytes(path, largest).decode("utf-8", errors)


def read_bytes(path: Path, largest: int = LARGEST_TEXT) -> bytes:
    with _opened(path, os.O_RDONLY, "rb") as file:
        return file.read(_size(file, path, largest))  # and not what somebody adds meanwhile


@contextmanager
def open_regular(path: Path, largest: int = LARGEST_PICTURE) -> Iterator[IO[bytes]]:
    """Open a regular file of at most `largest` bytes for a reader that takes an open file.

    Readers must not open the path again: what it leads to can change in between.
    """
    with _opened(path, os.O_RDONLY, "rb") as file:
        _size(file, path, largest)
        yield file


def remove_folder(path: Path) -> None:
    """If it is one: looking for the files in a pipe would wait for ever."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)


def size_of(folder: Path) -> int:
    """Bytes of all files below it."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


def last_touched(folder: Path) -> float:
    """When the newest of what lies below it was written."""
    return max((path.lstat().st_mtime for path in folder.rglob("*")), default=0.0)


def add_text(path: Path, text: str) -> None:
    """At the end of a file, on disk before this returns."""
    # For reading too: a pipe opened for writing alone waits for a reader.
    with _opened(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, "ab") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _opened(path: Path, flags: int, mode: str) -> Iterator[IO[bytes]]:
    """Open without waiting, and look at what was opened: what a name stands for can change in between."""
    handle = os.open(path, flags | os.O_NONBLOCK, 0o666)
    kind = KINDS.get(stat.S_IFMT(os.fstat(handle).st_mode))
    if kind:
        os.close(handle)
        raise OSError(errno.EINVAL, f"it is {kind} and not a file", str(path))
    with open(handle, mode) as file:  # noqa: PTH123  (a handle has no Path)
        yield file


def why(error: Exception) -> str:
    """What an OSError or another error says, on one line and without its number."""
    said = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return " ".join(said.split())


def _size(file: IO[bytes], path: Path, largest: int) -> int:
    size = os.fstat(file.fileno()).st_size
    if size > largest:
        raise OSError(errno.EFBIG, f"it has {size:,} bytes, and no more than {largest:,} are read", str(path))
    return size

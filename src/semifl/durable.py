"""Files that are either old or new, never half written, whatever happens in between."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def replace_file(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` make a file beside `path`, force it to disk, then put it in place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        write(part)
        part.chmod(0o666 & ~_umask())  # some writers make files that only their owner can read
        _force(part)
        part.replace(path)
        _force(path.parent)
    finally:
        part.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    replace_file(path, lambda part: _write_text(part, text))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _umask() -> int:
    current = os.umask(0o022)
    os.umask(current)
    return current


def _force(path: Path) -> None:
    if path.is_dir() and os.name == "nt":  # Windows cannot open a folder
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

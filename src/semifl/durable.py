"""Files that are either old or new, never half written, whatever happens in between."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from semifl.errors import UserError


def replace_file(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` make a file beside `path`, force it to disk, then put it in place in one step."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise UserError(f"cannot write {path}: a folder on the way there is a file") from error
    if path.is_dir():
        raise UserError(f"cannot write {path}: there is a folder of that name")
    part = path.with_name(path.name + ".part")
    try:
        _write(part, write)
        part.chmod(0o666 & ~_umask())  # some writers make files that only their owner can read
        _force(part)
        part.replace(path)
        _force(path.parent)
    finally:
        part.unlink(missing_ok=True)


def copy_file(source: Path, path: Path) -> None:
    def write(part: Path) -> None:
        shutil.copyfile(source, part)

    replace_file(path, write)


def _write(part: Path, write: Callable[[Path], None]) -> None:
    """A writer of another language tells of a full disk in its own way; make it the usual one."""
    try:
        write(part)
    except Exception as error:
        if "os error 28" in str(error):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(part)) from error
        raise


def replace_text(path: Path, text: str) -> None:
    replace_file(path, lambda part: _write_text(part, text))


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _umask() -> int:
    current = os.umask(0o022)
    os.umask(current)
    return current


def _force(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)

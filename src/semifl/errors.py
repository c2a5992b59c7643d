"""Errors that are told in one clear sentence, and where in a person's own code another one was raised."""

from __future__ import annotations

import sysconfig
import traceback
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_PYTHON = tuple({Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib")})
_INSTALLED = {"site-packages", "dist-packages"}  # folders of packages


class UserError(Exception):
    """Something the user can put right; the message is one sentence that names the file, key or site."""


class RunStopped(Exception):
    """A run that could not go on; the message is one sentence, and everything finished is kept."""


def is_own_code(file: str) -> bool:
    """Return whether a file is a person's own code: neither semifl, nor Python, nor an installed package."""
    path = Path(file).resolve()
    if not path.is_file() or _INSTALLED.intersection(path.parts):
        return False
    return not any(path.is_relative_to(folder) for folder in (_PACKAGE, *_PYTHON))


def own_code_location(error: BaseException) -> str:
    """Return "file:line" of the last frame in a person's own code; empty if the error did not pass any."""
    places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:  # raised by the parser, which has no frame in the file
        places.append((error.filename, error.lineno))
    file, line = next(((file, line) for file, line in reversed(places) if is_own_code(file)), ("", 0))
    if not file:
        return ""
    path = Path(file).resolve()
    return f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}:{line}"


def error_sentence(error: BaseException) -> str:
    """Return an error in one line, with its place in a person's own code unless its message tells what to do."""
    if isinstance(error, UserError | RunStopped):
        return " ".join(str(error).split())
    message = " ".join((error.msg if isinstance(error, SyntaxError) else str(error)).split())
    place = own_code_location(error)
    return f"{type(error).__name__}{': ' * bool(message)}{message}{f' ({place})' if place else ''}"


def has_traceback(error: BaseException | None) -> bool:
    """Return whether a traceback would tell more than the message: something unforeseen was raised."""
    if error is None:
        return False
    return not isinstance(error, UserError | RunStopped | OSError) or has_traceback(error.__cause__)


def full_traceback(error: BaseException) -> str:
    """Return the whole traceback, with that of the worker process in which it began."""
    return "".join(traceback.format_exception(error))

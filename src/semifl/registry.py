"""Open sets: a plural folder is its own registry. Drop a file in and everybody knows it."""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Iterable
from types import ModuleType
from typing import Any

from semifl.errors import UserError

HANDED_OVER = "python:"  # Prefix of things that a Python program passed in; no process can import them by name.


def names(package: str) -> list[str]:
    """The names in a folder such as `semifl.models`: those of its files."""
    folder = importlib.import_module(package)
    return sorted(module.name for module in pkgutil.iter_modules(folder.__path__) if not module.name.startswith("_"))


def load(package: str, name: str) -> ModuleType:
    """The file behind a name."""
    return importlib.import_module(f"{package}.{name}")


def find(package: str, name: str, key: str) -> Any:
    """What `name`, the value of `key`, stands for: a class of the folder, or the user's own `module:thing`."""
    if name.startswith(HANDED_OVER):
        raise UserError(only_in_python(key))
    if ":" in name:
        return _import_user(name, key)
    if name not in names(package):
        raise unknown(name, key, names(package))
    module = load(package, name)
    wanted = name.replace("_", "")
    for attribute, value in vars(module).items():  # the class is named as its file: wide_resnet → WideResNet
        if attribute.lower() == wanted and isinstance(value, type):
            return value
    raise ImportError(f"{module.__name__} has no class named like its file")


def names_code(name: str) -> bool:
    """Return True if, and only if, `find` would import a user's own module for this name."""
    module, colon, attribute = name.partition(":")
    return (
        bool(colon)
        and not name.startswith(HANDED_OVER)
        and all(part.isidentifier() for part in (*module.split("."), attribute))
    )


def only_in_python(what: str) -> str:
    """Return the sentence for a thing that a run directory cannot name."""
    return (
        f"{what} was handed over by a Python program, so only Python can go on with this: "
        "call semifl.train, or semifl.load, with the same things"
    )


def name_of(package: str, thing: Any) -> str:
    """The name that an instance would be found by."""
    module, _, file = type(thing).__module__.rpartition(".")
    return file if module == package else f"{type(thing).__module__}:{type(thing).__name__}"


def unknown(name: str, key: str, known: Iterable[str]) -> UserError:
    """The complaint about a name that stands for nothing."""
    return UserError(f"{key} = {name!r} is not one of {', '.join(known)}{did_you_mean(name, known)}")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """'; did you mean …?' or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""


def _import_user(name: str, key: str) -> Any:
    module_name, _, attribute = name.partition(":")
    if not names_code(name):
        raise UserError(f"{key} = {name!r} is not of the form package.module:name")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise UserError(f"{key} = {name!r} cannot be imported: {error}") from error
    if not hasattr(module, attribute):
        raise UserError(
            f"{key} = {name!r} cannot be found: module {module_name!r} has no {attribute!r}"
            + did_you_mean(attribute, vars(module))
        )
    return getattr(module, attribute)

"""Values that a configuration can hold: which type they fit, what to say if they do not, and how they are made so."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from semifl import registry

LARGEST = 2**63  # of whole numbers, and not itself one
WORDS: dict[Any, str] = {  # what people call a type
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a string",
    NoneType: "None",
    ...: "…",
}


def plain(value: Any) -> Any:
    """Numbers of NumPy or torch, alone or in a row, as Python's own, which alone can be written into config.toml."""
    value = value.tolist() if hasattr(value, "tolist") and not isinstance(value, type) else value
    return tuple(plain(each) for each in value) if isinstance(value, (list, tuple)) else value


def fits(wanted: Any, value: Any) -> bool:
    """Whether the value is of the type; of one that no key of a configuration has, anything is."""
    kind, parts = get_origin(wanted), get_args(wanted)
    if kind is Annotated:
        return fits(parts[0], value)
    if kind in (Union, UnionType):
        return any(fits(part, value) for part in parts)
    if kind is Literal:  # 1, 1.0 and True are equal
        return any(fits(type(part), value) and value == part for part in parts)
    if kind is tuple:
        row = parts[:1] * len(value) if isinstance(value, tuple) and parts[1:] == (...,) else parts
        return isinstance(value, tuple) and len(value) == len(row) and all(map(fits, row, value))
    if wanted in (bool, int, float):  # not what inherits from them: numbers of NumPy cannot be written to a file
        return type(value) is wanted or (wanted is float and type(value) is int)
    return isinstance(value, wanted) if wanted in (str, NoneType) else True


def mismatch(wanted: Any, given: Any) -> str:
    """What to say of a value of another type."""
    hint = registry.did_you_mean(given, map(str, _words(wanted))) if isinstance(given, str) else ""
    return f"must be {_described(wanted)}, not {given!r}{hint}"


def _described(wanted: Any) -> str:
    kind, parts = get_origin(wanted), get_args(wanted)
    if kind is Annotated:
        return _described(parts[0])
    if kind is tuple:
        return f"({', '.join(map(_described, parts))})"
    words = [f"one of {', '.join(map(str, _words(wanted)))}"] if _words(wanted) else []
    others = [part for part in parts if get_origin(part) is not Literal] if kind in (Union, UnionType) else []
    return " or ".join([*words, *map(_described, others)]) or WORDS.get(wanted, str(wanted))


def _words(wanted: Any) -> list[Any]:
    """What may be said, of one literal or of several side by side."""
    if get_origin(wanted) is Literal:
        return list(get_args(wanted))
    parts = get_args(wanted) if get_origin(wanted) in (Union, UnionType) else ()
    return [word for part in parts if get_origin(part) is Literal for word in get_args(part)]


def too_large(value: Any) -> bool:
    """Whether it is a whole number that no configuration takes."""
    return type(value) is int and abs(value) >= LARGEST

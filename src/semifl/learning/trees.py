"""Nests of tuples, dicts, tensors and plain values, taken apart for a file and put together again without pickle."""

from __future__ import annotations

from typing import Any

from torch import Tensor

Skeleton = Any  # JSON: the nest with each tensor replaced by its number


class AnotherForm(ValueError):
    """A named tuple was written with other fields than it has now."""


def flatten(tree: Any, tensors: list[Tensor]) -> Skeleton:
    """The structure of `tree`; its tensors are appended to `tensors`."""
    if isinstance(tree, Tensor):
        tensors.append(tree)
        return {"tensor": len(tensors) - 1}
    if isinstance(tree, dict):
        return {"dict": [[key, flatten(value, tensors)] for key, value in tree.items()]}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        parts = [flatten(part, tensors) for part in tree]
        return {"named": type(tree).__name__, "fields": list(tree._fields), "parts": parts}
    if isinstance(tree, (tuple, list)):
        return {"tuple": [flatten(part, tensors) for part in tree]}
    if tree is None or isinstance(tree, (bool, int, float, str)):
        return {"value": tree}
    raise TypeError(f"a State may hold tuples, dicts, tensors and plain values, not {type(tree).__name__}")


def rebuild(skeleton: Skeleton, tensors: list[Tensor], named: dict[str, type]) -> Any:
    """The nest again; `named` gives the NamedTuple classes it may contain."""
    match skeleton:
        case {"tensor": number}:
            return tensors[number]
        case {"dict": items}:
            return {key: rebuild(value, tensors, named) for key, value in items}
        case {"named": name, "fields": fields, "parts": parts}:
            built = (rebuild(part, tensors, named) for part in parts)
            return _made(named[name], dict(zip(fields, built, strict=True)))
        case {"named": name, "parts": parts}:  # as written before fields had their names beside them
            return named[name](*(rebuild(part, tensors, named) for part in parts))
        case {"tuple": parts}:
            return tuple(rebuild(part, tensors, named) for part in parts)
        case {"value": value}:
            return value
    raise ValueError("not the structure of a State")


def _made(kind: Any, values: dict[str, Any]) -> Any:
    """The named tuple; a field that is new since it was written has its default."""
    missing = [name for name in kind._fields if name not in values and name not in kind._field_defaults]
    if missing or (unknown := values.keys() - set(kind._fields)):
        what = f"has no {missing[0]!r}" if missing else f"has {min(unknown)!r}, which is not known here"
        raise AnotherForm(f"its {kind.__name__} {what}")
    return kind(**values)

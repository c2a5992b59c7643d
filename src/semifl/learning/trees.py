"""Nests of tuples, dicts, tensors and plain values, taken apart for a file and put together again without pickle."""

from __future__ import annotations

from typing import Any

from torch import Tensor

Skeleton = Any  # JSON: the nest with each tensor replaced by its number


def flatten(tree: Any, tensors: list[Tensor]) -> Skeleton:
    """The structure of `tree`; its tensors are appended to `tensors`."""
    if isinstance(tree, Tensor):
        tensors.append(tree)
        return {"tensor": len(tensors) - 1}
    if isinstance(tree, dict):
        return {"dict": [[key, flatten(value, tensors)] for key, value in tree.items()]}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return {"named": type(tree).__name__, "parts": [flatten(part, tensors) for part in tree]}
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
        case {"named": name, "parts": parts}:
            return named[name](*(rebuild(part, tensors, named) for part in parts))
        case {"tuple": parts}:
            return tuple(rebuild(part, tensors, named) for part in parts)
        case {"value": value}:
            return value
    raise ValueError("not the structure of a State")

"""Nested tables whose leaves are scalars or lists of scalars, and TOML out (the standard library only reads it)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any

Table = dict[str, Any]

BARE = re.compile("[A-Za-z0-9_-]+")  # a key that needs no quotes


def dotted(table: Table, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every value by its whole name, section.key."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def dumps(table: Table, prefix: str = "") -> str:
    leaves = {key: value for key, value in table.items() if not isinstance(value, dict)}
    lines = [f"{_key(key)} = {scalar(value)}" for key, value in leaves.items()]
    if prefix and (leaves or not table):  # an empty table is a value, too
        lines.insert(0, f"[{prefix}]")
    text = "\n".join(lines) + "\n" if lines else ""
    for key, value in table.items():
        if isinstance(value, dict):
            inner = dumps(value, f"{prefix}.{_key(key)}" if prefix else _key(key))
            text += f"\n{inner}" if text else inner
    return text


def scalar(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")  # the one character JSON leaves bare
    return "[" + ", ".join(scalar(part) for part in value) + "]"


def _key(key: str) -> str:
    return key if BARE.fullmatch(key) else scalar(key)

"""JSON and TOML from files that anybody may have written: what is nested endlessly is refused, not followed."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable
from typing import Any, TypeVar

T = TypeVar("T")
BYTE_ORDER_MARK = "\ufeff"  # some editors begin a text with it, and nobody sees it
DEEPEST = 100  # levels; whatever walks down a nest of ours may then call itself
# Keys joined by dots, before they are parsed: of a hundred thousand the parser would make a table each, for minutes.
_LONG_KEY = re.compile(rf"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){{{DEEPEST}}}""")


class TooDeep(ValueError):
    """Nested too deeply to be followed."""

    def __init__(self) -> None:
        super().__init__(f"it is nested more than {DEEPEST} levels deep")


def from_json(text: str) -> Any:
    """A ValueError says why it is no JSON of ours."""
    try:
        return shallow(json.loads(text))
    except RecursionError:
        raise TooDeep from None


def from_toml(text: str) -> dict[str, Any]:
    """A ValueError says why it is no TOML of ours."""
    if _LONG_KEY.search(text):
        raise TooDeep
    try:
        return shallow(tomllib.loads(text.removeprefix(BYTE_ORDER_MARK)))
    except RecursionError:
        raise TooDeep from None


def shallow(content: T) -> T:
    """The nest itself, unless it is too deep; level by level, so that no depth can hurt."""
    level: list[Any] = [content]
    for _ in range(DEEPEST + 1):
        level = [part for each in level for part in _parts(each)]
        if not level:
            return content
    raise TooDeep


def _parts(nest: Any) -> Iterable[Any]:
    if isinstance(nest, dict):
        return nest.values()
    return nest if isinstance(nest, (list, tuple)) else ()

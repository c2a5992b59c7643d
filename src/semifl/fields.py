"""What a field of a dataclass declares: its type, the range it must lie in, and what it is chosen from.

One way for methods, objectives, models, data sets and every other section of a configuration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, get_args, get_type_hints

from semifl import registry
from semifl.plain import fits, mismatch, plain, too_large


@dataclass(frozen=True)
class Range:
    """Finite numbers from `least` to `most`; an open end is not itself in the range."""

    least: float = -math.inf
    most: float = math.inf
    open_least: bool = False
    open_most: bool = False

    def complaint(self, value: float) -> str:
        """What to say of a number outside, or nothing."""
        above = value > self.least if self.open_least else value >= self.least
        below = value < self.most if self.open_most else value <= self.most
        if above and below and math.isfinite(value):
            return ""
        if self.least == 0 and self.most == math.inf and not self.open_least:
            return f"must not be negative, but is {value}" if value < 0 else f"must be a finite number, not {value}"
        if self.least == -math.inf:
            return f"must be {'below' if self.open_most else 'at most'} {self.most:g}, not {value}"
        if self.most == math.inf:
            return f"must be {'above' if self.open_least else 'at least'} {self.least:g}, not {value}"
        if self.open_least == self.open_most:
            return f"must lie between {self.least:g} and {self.most:g}, not {value}"
        lower, upper = ("above" if self.open_least else "at least"), ("below" if self.open_most else "at most")
        return f"must be {lower} {self.least:g} and {upper} {self.most:g}, not {value}"


Share = Annotated[float, Range(0, 1)]
ShareBelowOne = Annotated[float, Range(0, 1, open_most=True)]
Count = Annotated[int, Range(1)]
Whole = Annotated[int, Range(0)]
Positive = Annotated[float, Range(0, open_least=True)]
NotNegative = Annotated[float, Range(0)]


@dataclass(frozen=True, eq=False)  # a mark within a type must be hashable, and a list of classes is not
class Choice:
    """The field is a section with a `name`: of a class in an open folder, or of one in a short list."""

    among: str | Mapping[str, type]
    duty: str = "__init__"  # what a class must have, where a person's own may be chosen

    def names(self) -> list[str]:
        return registry.names(self.among) if isinstance(self.among, str) else list(self.among)

    def find(self, name: str, key: str) -> Any:
        """The class of that name; `key` is whose value the name is."""
        if isinstance(self.among, str):
            return registry.find(self.among, name, key)
        if name not in self.among:
            raise registry.unknown(name, key, self.among)
        return self.among[name]

    def holds(self, thing: Any) -> bool:
        """Whether this is something that can be chosen; of an open folder anything with the duty."""
        if isinstance(self.among, str):
            return hasattr(thing, self.duty)
        return type(thing) in self.among.values()

    def name_of(self, thing: Any) -> str:
        if isinstance(self.among, str):
            return registry.name_of(self.among, thing)
        return next(name for name, cls in self.among.items() if type(thing) is cls)


class Checked:
    """A dataclass whose values are checked when it is made: by the types, ranges and choices of its fields.

    A configuration checks types itself; a Python program, which may write anything, meets them here.
    """

    def __post_init__(self) -> None:
        cls: type = type(self)
        for name, wanted in _types(cls).items():
            self._check_type(name, wanted)
        for name, allowed in ranges(cls).items():
            value = getattr(self, name)
            complaint = "" if value is None else allowed.complaint(value)
            if complaint:
                raise ValueError(f"{name} {complaint}")
        for name, choice in choices(cls).items():
            value = getattr(self, name)
            if value is not None and not choice.holds(value):
                raise ValueError(f"{name} must be one of {', '.join(choice.names())} as an object, not {value!r}")

    def _check_type(self, name: str, wanted: Any) -> None:
        given = getattr(self, name)
        if not fits(wanted, given):
            value = plain(given)
            if not fits(wanted, value):
                raise ValueError(f"{name} {mismatch(wanted, given)}")
            object.__setattr__(self, name, value)
        if too_large(getattr(self, name)):
            raise ValueError(f"{name} is too large a number")


def ranges(cls: type) -> dict[str, Range]:
    return _declared(cls, Range)


def choices(cls: type) -> dict[str, Choice]:
    """The fields that are sections of their own."""
    return _declared(cls, Choice)


@cache
def _declared(cls: type, kind: type[Any]) -> dict[str, Any]:
    hints = get_type_hints(cls, include_extras=True)
    found = {name: _marks(hint, kind) for name, hint in hints.items()}
    return {name: marks[0] for name, marks in found.items() if marks}


def _marks(hint: Any, kind: type[Any]) -> list[Any]:
    """What the hint says of itself, or one of its alternatives ("a share, or None") of itself."""
    own = [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, kind)]
    return own or [mark for part in get_args(hint) for mark in _marks(part, kind)]


@cache
def _types(cls: type) -> dict[str, Any]:
    hints = get_type_hints(cls, include_extras=True)
    return {each.name: hints[each.name] for each in fields(cls) if each.init}

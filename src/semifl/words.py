"""Words for people that several rooms need."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shlex import quote


def counted(count: int, thing: str) -> str:
    """'1 round', '2 rounds'."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def shown(name: object) -> str:
    """The name of a file as text that can be written anywhere; bytes that are no UTF-8 become \\xe4 and the like."""
    return str(name).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def printable(text: object) -> str:
    """Return text for a terminal or a log: characters that steer either, line breaks among them, become escapes."""
    return "".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in shown(text))


def resume_command(run: Path) -> str:
    """What a person types to go on with a run, wherever it lies."""
    return f"semifl resume {quote(str(run))}"


def listed(names: Sequence[str], most: int = 3) -> str:
    """'a', 'a and b', 'a, b, c and 4 more'."""
    names = list(names) if len(names) <= most else [*names[:most], f"{len(names) - most} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

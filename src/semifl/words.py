"""Words for people that several rooms need."""

from __future__ import annotations


def counted(count: int, thing: str) -> str:
    """'1 round', '2 rounds'."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"

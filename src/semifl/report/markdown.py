"""Tables as Markdown, lined up so that they also read well in a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(_width(line[i]) for line in (header, *rows)) for i in range(len(header))]
    lines = [_line(header, widths), "|" + "|".join("-" * (width + 2) for width in widths) + "|"]
    return "\n".join([*lines, *(_line(row, widths) for row in rows)])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return (
        "| " + " | ".join(cell + " " * (width - _width(cell)) for cell, width in zip(cells, widths, strict=True)) + " |"
    )


def _width(text: str) -> int:
    return sum(0 if unicodedata.combining(letter) else 1 for letter in text)

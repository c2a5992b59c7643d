"""Galleries: the pictures that a finished run left in its directory, cut from their sheets and put into the page."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass
from typing import Any, NamedTuple

from PIL import Image

from semifl.regular import read_bytes
from semifl.report.reading import Run

TITLES = {
    "views": (
        "Views",
        "Some of the server's pictures as the method sees them: as they are, and in the views that are trained on.",
    ),
    "confident": (
        "The most confident pseudo-labels",
        "Pictures of a few clients, what the final model takes them for, and how sure it is; the surest of each class.",
    ),
    "mistakes": (
        "Confident mistakes",
        "Pictures that a client would train on with a wrong label. Only a simulation can know.",
    ),
}
LARGEST_SHEET = 4096 * 4096  # pixels; ours are far smaller


class Tile(NamedTuple):
    source: str  # a data: address
    caption: str


@dataclass(frozen=True)
class Gallery:
    name: str
    title: str
    caption: str
    across: int  # tiles in a row, where rows mean something
    tiles: list[Tile]


def galleries(run: Run) -> tuple[list[Gallery], list[str]]:
    """What can be shown, and sentences about what cannot."""
    shown, problems = [], []
    listed = run.gallery.get("galleries")
    for about in listed if isinstance(listed, list) else []:
        if not isinstance(about, dict) or about.get("name") not in TITLES:
            continue
        title, caption = TITLES[about["name"]]
        try:
            tiles = _tiles(run, about)
        except (OSError, ValueError, TypeError, KeyError, SyntaxError) as error:
            problems.append(f"gallery/{about['name']}.png cannot be shown: {error}")
            continue
        caption += "" if tiles else " There is none among those that were looked at."
        across = int(about["across"]) if about["name"] == "views" else 0
        shown.append(Gallery(about["name"], title, caption, across, tiles))
    return shown, problems


def _tiles(run: Run, about: dict[str, Any]) -> list[Tile]:
    captions, side, across = list(about["captions"]), int(about["side"]), int(about["across"])
    if not captions:
        return []
    stored = read_bytes(run.path / "gallery" / f"{about['name']}.png")
    with Image.open(io.BytesIO(stored), formats=["PNG"]) as sheet:
        if sheet.width * sheet.height > LARGEST_SHEET or not 1 <= side <= sheet.width or across < 1:
            raise ValueError("its size does not fit its list")
        return [
            Tile(_address(_cut(sheet, side, i % across, i // across)), str(caption))
            for i, caption in enumerate(captions[:200])
        ]


def _cut(sheet: Image.Image, side: int, column: int, row: int) -> Image.Image:
    return sheet.crop((side * column, side * row, side * (column + 1), side * (row + 1)))


def _address(picture: Image.Image) -> str:
    stream = io.BytesIO()
    picture.save(stream, "PNG")
    return "data:image/png;base64," + base64.b64encode(stream.getvalue()).decode()

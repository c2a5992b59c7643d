"""What lies in a folder of pictures, told before anything is trained: how many, how large, of which kinds."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from PIL import Image

from semifl.data.dicom import describe, is_dicom
from semifl.data.pictures import FORMATS, is_picture, pictures_below
from semifl.regular import open_regular
from semifl.words import shown

KINDS = {
    "1": "black and white", "L": "grey", "LA": "grey with transparency", "P": "palette", "RGB": "colour",
    "RGBA": "colour with transparency", "CMYK": "CMYK", "I": "16-bit grey", "F": "floating point",
}  # fmt: skip


class Entry(NamedTuple):
    """A picture and where it was found: in which part, and in the folder of which class or site."""

    part: str
    group: str
    path: Path
    label: str = ""  # of a client's picture, where a simulation knows it


class Survey(NamedTuple):
    counts: dict[str, dict[str, int]]  # by part, then by class or site
    sizes: list[tuple[int, int]]  # width and height of every file that has them, the smallest picture first
    kinds: Counter[str]
    others: Counter[str]  # files that are no pictures by their suffix
    unlisted: int  # pictures of which the list that says what is what does not speak


def survey(root: Path, groups: dict[str, list[str]], entries: Sequence[Entry], is_listed: bool) -> Survey:
    counts = {part: dict.fromkeys(names, 0) for part, names in groups.items()}
    sizes, kinds = [], Counter[str]()
    for entry in entries:
        counts[entry.part][entry.group] += 1
        if seen := _look(entry.path):
            size, kind = seen
            sizes.append(size)
            kinds[kind] += 1
    sizes.sort(key=lambda size: (size[0] * size[1], size))
    known = {entry.path for entry in entries}
    unlisted = sum(path not in known for path in pictures_below(root)) if is_listed else 0
    return Survey(counts, sizes, kinds, _others(root, groups), unlisted)


def _look(path: Path) -> tuple[tuple[int, int], str] | None:
    """Size and kind by the file's first bytes; a file that cannot be opened is for whoever decodes it to name."""
    try:
        with open_regular(path) as file:
            if is_dicom(path, file):
                return describe(file)
            with Image.open(file, formats=FORMATS) as picture:
                mode = picture.mode.partition(";")[0]
                return picture.size, f"{picture.format} {KINDS.get(mode, mode)}"
    except Exception:
        return None


def _others(root: Path, groups: dict[str, list[str]]) -> Counter[str]:
    """Files that are not read, by suffix: pictures of a kind that is not supported may be among them."""
    found = Counter[str]()
    for part in groups:
        for at, folders, files in os.walk(root / part):
            folders[:] = [name for name in folders if not name.startswith(".")]
            others = (name for name in files if not name.startswith(".") and not is_picture(os.path.join(at, name)))  # noqa: PTH118
            found.update(shown(Path(name).suffix.lower() or name) for name in others)
    return found

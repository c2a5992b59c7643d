"""Labels from a CSV file instead of folders: which class a picture is of, which site holds it, what it is for."""

from __future__ import annotations

import csv
import os
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from semifl.data.survey import Entry
from semifl.errors import UserError
from semifl.registry import did_you_mean
from semifl.regular import read_text, why

COLUMNS = ("file", "label", "site", "part")
PARTS = ("labeled", "clients", "train", "test")
LARGEST = 1 << 28  # bytes
EXPECTED = "the first line names the columns: file, label and perhaps site and part"

Groups = dict[str, dict[str, Path]]  # the folders of each part, by class or site


class Row(NamedTuple):
    line: int
    file: str
    label: str
    site: str
    part: str


def read_rows(path: Path, folder: Path) -> list[Row]:
    """Lines of a CSV file with commas, semicolons or tabs between its columns; its names are relative to the folder."""
    try:
        text = read_text(path, largest=LARGEST)
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read as a CSV file: {why(error)}") from error
    lines = text.removeprefix("\ufeff").splitlines()
    between = max(",;\t", key=(lines[0] if lines else "").count)
    try:
        header, *rest = csv.reader(lines, delimiter=between, strict=True)
    except ValueError as error:  # not even a first line
        raise UserError(f"{path} is empty: {EXPECTED}") from error
    except csv.Error as error:
        raise UserError(f"{path} is not a CSV file ({error})") from error
    places = _places([name.strip().lower() for name in header], path)
    rows = [
        _row(number, *(_cell(cells, places.get(name)) for name in COLUMNS))
        for number, cells in enumerate(rest, start=2)
        if any(cell.strip() for cell in cells)
    ]
    return [row._replace(file=_with_slashes(folder, row.file)) for row in rows]


def _with_slashes(folder: Path, name: str) -> str:
    """Lists made on Windows have backslashes between folders; elsewhere one may be a letter of a name."""
    return name if "\\" not in name or (folder / name).is_file() else name.replace("\\", "/")


def _row(line: int, file: str, *others: str) -> Row:
    """A file's name stays as it is written: only the disk knows how it is spelled there."""
    return Row(line, file, *map(_one_spelling, others))


def listed(root: Path, path: Path, parts: Sequence[str]) -> tuple[Groups, list[Entry]]:
    """The classes and sites of every part, and its pictures in an order that does not depend on that of the file."""
    entries, seen = list[Entry](), dict[str, int]()
    for row in read_rows(path, root):
        where = f"{path}, line {row.line}"
        part = _part(row, where)
        if part not in parts:
            continue
        file = _file(root, row, where)
        name = _one_spelling(str(file))
        if name in seen:
            raise UserError(f"{where}: {row.file} stands in line {seen[name]} too")
        seen[name] = row.line
        entries.append(Entry(part, _group(row, part, where), file, row.label))
    _refuse_missing(entries, path)
    order = {part: number for number, part in enumerate(parts)}
    entries.sort(key=lambda each: (order[each.part], os.fsencode(each.group), os.fsencode(each.path)))
    groups: Groups = {part: {} for part in parts}
    for entry in entries:
        groups[entry.part][entry.group] = root
    return groups, entries


def parts_of(root: Path, path: Path) -> set[str]:
    """The parts that a file speaks of."""
    return {_part(row, f"{path}, line {row.line}") for row in read_rows(path, root)}


def _places(header: list[str], path: Path) -> dict[str, int]:
    for name in COLUMNS[:2]:
        if name not in header:
            raise UserError(f"{path} has no column {name!r}{did_you_mean(name, header)}: {EXPECTED}")
    return {name: header.index(name) for name in COLUMNS if name in header}


def _cell(cells: list[str], place: int | None) -> str:
    return "" if place is None or place >= len(cells) else cells[place].strip()


def _one_spelling(name: str) -> str:
    """macOS spells "ä" as two characters, others as one; they are the same name."""
    return unicodedata.normalize("NFC", name)


def spelled_as_there(folder: Path, name: str) -> Path:
    """The file of that name, whichever way a disk and a list spell its letters; as the list does if there is none."""
    spellings = (name, *(unicodedata.normalize(form, name) for form in ("NFC", "NFD")))
    return next((folder / each for each in spellings if (folder / each).is_file()), folder / name)


def part_of(row: Row) -> str:
    """What a picture is for, as the column says or as its first folder is called; nothing if neither does."""
    if row.part:
        return row.part
    first = Path(row.file).parts[:1]
    return first[0] if first and first[0] in PARTS else ""


def _part(row: Row, where: str) -> str:
    """The same where every picture must have one; unlabeled ones are a client's."""
    if row.part and row.part not in PARTS:
        raise UserError(f"{where}: part {row.part!r} is not one of {', '.join(PARTS)}")
    if part := part_of(row):
        return part
    if not row.label:
        return "clients"
    raise UserError(
        f"{where}: {row.file} has a label, but nothing says what it is for: put it below labeled/, train/ or test/, "
        "or add a column part with these words"
    )


def _group(row: Row, part: str, where: str) -> str:
    """The class, or at clients the site."""
    if part != "clients":
        if not row.label:
            raise UserError(f"{where}: {row.file} is for {part} and has no label")
        return row.label
    folders = Path(_one_spelling(row.file)).parts
    site = row.site or (folders[1] if len(folders) > 2 and folders[0] == "clients" else "")
    if not site:
        raise UserError(f"{where}: {row.file} is a client's and has no site")
    return site


def _file(root: Path, row: Row, where: str) -> Path:
    inside = Path(row.file)
    if not row.file or inside.is_absolute() or ".." in inside.parts or "\0" in row.file:
        raise UserError(f"{where}: {row.file!r} is not the name of a file below {root}")
    return spelled_as_there(root, row.file)


def _refuse_missing(entries: Sequence[Entry], path: Path) -> None:
    missing = [entry.path for entry in entries if not entry.path.is_file()]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise UserError(f"{path} names files that are not there: {missing[0]}{more}")

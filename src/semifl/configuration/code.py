"""Code that a configuration names, `package.module:thing`, and whose word it is.

What a person writes into a configuration or a program is that person's word, and is imported. A model file or a run
directory can have come from anybody, from a hub too: what it names is imported if this person has run exactly that
before, or has said `semifl trust`. A list of fingerprints in the person's own folder remembers it, as ssh does hosts,
with the folder in which the code lay: it is imported from there, wherever the program runs later.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from semifl import registry
from semifl.errors import UserError, is_own_code
from semifl.provenance import code_digest
from semifl.records.directory import RunDirectory
from semifl.regular import add_text, read_text
from semifl.toml import Table, dotted

SECTIONS = ("data", "model", "method")  # that can name code
WARM_START = ("weights", "partial")  # of [model], but not of the model: its file does not have them


class OwnCode(NamedTuple):
    """The file behind a name such as `mine:Method`, as it was imported."""

    file: str
    folder: str  # from which Python imports the module
    digest: str


def own_code(table: Table) -> dict[str, OwnCode]:
    """Return the files of a person's own that a configuration names, as far as they have been imported."""
    found = {}
    for name in code_in(table).values():
        module = name.partition(":")[0]
        file = getattr(sys.modules.get(module), "__file__", None)
        if file and is_own_code(file):
            path = Path(file).resolve()
            unit = path.parent if path.stem == "__init__" else path
            folder = unit.parents[module.count(".")]
            found[name] = OwnCode(str(path), str(folder), code_digest([path], folder))
    return found


def code_in(table: Table) -> dict[str, str]:
    """The code that a configuration names, by key."""
    sections = {name: table[name] for name in SECTIONS if isinstance(table.get(name), dict)}
    return {key: value for key, value in dotted(sections) if _is_code(key, value)}


def refuse_foreign_code(table: Table, path: Path) -> None:
    """Of a table that was read from a file which anybody may have written: nothing of it has been imported yet.

    What is no stranger is found wherever this program runs: in the folder from which this person has run it.
    """
    known = _known()
    recorded = recorded_folders(path)
    for section, fingerprint in _fingerprints(table):
        for name in code_in({section: table[section]}).values() if fingerprint in known else ():
            _search(recorded.get(name, ""), known[fingerprint])
        if fingerprint not in known:
            key, name = next(iter(code_in({section: table[section]}).items()))
            raise UserError(
                f"{path} names code, {key} = {name!r}, which has not been run here before and is not run for a file's "
                f"sake: if you trust whoever made that file, say so by `semifl trust {shlex.quote(str(path))}`"
            )


def remember_code(table: Table, folders: Mapping[str, str]) -> None:
    """This person runs a configuration: what it names is no stranger from now on, and where it lies is remembered.

    Raises OSError where that cannot be written down.
    """
    known, path = _known(), _list()
    for section, fingerprint in _fingerprints(table):
        names = dict.fromkeys(code_in({section: table[section]}).values())
        there = {folder for name in names if (folder := folders.get(name, "")).isprintable()} - {""}
        if fingerprint in known and there <= set(known[fingerprint]):
            continue
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        add_text(path, "\t".join([f"{fingerprint} {', '.join(names)}", *sorted(there)]) + "\n")


def remember_own_run(table: Table) -> None:
    """As much, but a run does not fail where there is no place to remember it."""
    with suppress(OSError):
        remember_code(table, {name: code.folder for name, code in own_code(table).items()})


def recorded_folders(path: Path) -> dict[str, str]:
    """Return the folders that a run directory, or that of a model file, says its code lay in; anybody's word."""
    recorded = RunDirectory(path if path.is_dir() else path.parent).environment().get("own_code")
    entries = recorded.items() if isinstance(recorded, dict) else ()
    folders = {name: code.get("folder") for name, code in entries if isinstance(code, dict)}
    return {name: folder for name, folder in folders.items() if isinstance(folder, str) and folder.isprintable()}


def _search(recorded: str, known: Sequence[str]) -> None:
    """Let Python find a module where this person ran it; a file's word alone adds no folder.

    A folder that the run recorded comes before the current one. Of others the latest follows it.
    """
    is_known = recorded in known
    folder = recorded if is_known else next((each for each in reversed(known) if Path(each).is_dir()), "")
    if folder and folder not in sys.path:
        here = str(Path.cwd())
        sys.path.insert(sys.path.index(here) if is_known and here in sys.path else len(sys.path), folder)


def _is_code(key: str, value: object) -> bool:
    """Return True if decoding the configuration would import a module that is not semifl's own.

    Only `data.name` may lead into semifl itself: of its classes nothing but one with `load` is made there, whereas
    `model.name` takes any function.
    """
    if not isinstance(value, str) or (key == "data.name" and value.startswith("semifl.")):
        return False
    return registry.names_code(value)


def _fingerprints(table: Table) -> Iterator[tuple[str, str]]:
    """Of each section that names code, with all its values: the same function with others may do anything."""
    for section in SECTIONS:
        if code_in({section: table.get(section)}):
            values = {key: value for key, value in table[section].items() if key not in WARM_START}
            text = json.dumps([section, values], sort_keys=True, default=str)
            yield section, hashlib.sha256(text.encode()).hexdigest()


def _known() -> dict[str, list[str]]:
    """Each fingerprint with the folders that its code was run from, the latest last."""
    known: dict[str, list[str]] = {}
    with suppress(OSError, ValueError):
        for line in read_text(_list()).splitlines():
            entry, *folders = line.split("\t")
            known.setdefault(entry.partition(" ")[0], []).extend(folders)
    return known


def _list() -> Path:
    """In the person's own folder, never where data are shared: a line here lets code run."""
    config = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(config).expanduser().absolute() / "semifl" / "trusted-code"

"""Code that a configuration names, `package.module:thing`, and whose word it is.

What a person writes into a configuration or a program is that person's word, and is imported. A model file or a run
directory can have come from anybody, from a hub too: what it names is imported if this person has run exactly that
before, or has said `semifl trust`. A list of fingerprints in the person's own folder remembers it, as ssh does hosts.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from semifl import registry
from semifl.errors import UserError
from semifl.regular import add_text, read_text
from semifl.toml import Table, dotted

HANDED_OVER = "python:"  # begins the names of things that a Python program handed over and no name leads to
HUB_PICTURES = "semifl.deploy.pictures:HubPictures"  # the one such name that is semifl's own
SECTIONS = ("data", "model", "method")  # that can name code
WARM_START = ("weights", "partial")  # of [model], but not of the model: its file does not have them


def code_in(table: Table) -> dict[str, str]:
    """The code that a configuration names, by key."""
    sections = {name: table[name] for name in SECTIONS if isinstance(table.get(name), dict)}
    return {key: value for key, value in dotted(sections) if _is_code(value)}


def refuse_foreign_code(table: Table, path: Path) -> None:
    """Of a table that was read from a file which anybody may have written: nothing of it has been imported yet."""
    known = _known()
    for section, fingerprint in _fingerprints(table):
        if fingerprint not in known:
            key, name = next(iter(code_in({section: table[section]}).items()))
            raise UserError(
                f"{path} names code, {key} = {name!r}, which has not been run here before and is not run for a file's "
                f"sake: if you trust whoever made that file, say so by `semifl trust {shlex.quote(str(path))}`"
            )


def remember_code(table: Table) -> None:
    """This person runs a configuration: what it names is no stranger from now on. Raises OSError where it cannot."""
    known, names = _known(), code_in(table)
    new = [(section, each) for section, each in _fingerprints(table) if each not in known]
    if not new:
        return
    path = _list()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for section, fingerprint in new:
        told = ", ".join(name for key, name in names.items() if key.startswith(f"{section}."))
        add_text(path, f"{fingerprint} {told}\n")


def remember_own_run(table: Table) -> None:
    """As much, but a run does not fail where there is no place to remember it."""
    with suppress(OSError):
        remember_code(table)


def _is_code(value: object) -> bool:
    if not isinstance(value, str) or value == HUB_PICTURES or value.startswith(HANDED_OVER):
        return False
    return registry.names_code(value)


def _fingerprints(table: Table) -> Iterator[tuple[str, str]]:
    """Of each section that names code, with all its values: the same function with others may do anything."""
    for section in SECTIONS:
        if code_in({section: table.get(section)}):
            values = {key: value for key, value in table[section].items() if key not in WARM_START}
            text = json.dumps([section, values], sort_keys=True, default=str)
            yield section, hashlib.sha256(text.encode()).hexdigest()


def _known() -> set[str]:
    try:
        return {line.partition(" ")[0] for line in read_text(_list()).splitlines()}
    except (OSError, ValueError):
        return set()


def _list() -> Path:
    """In the person's own folder, never where data are shared: a line here lets code run."""
    config = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(config).expanduser().absolute() / "semifl" / "trusted-code"

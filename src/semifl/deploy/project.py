"""Who takes part in a real federation: one `project.toml`, kept by whoever makes the kits."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from semifl.errors import UserError
from semifl.parsing import from_toml
from semifl.registry import did_you_mean
from semifl.toml import scalar

# A certificate holds names of at most 64 characters, file systems may not tell capitals from small letters, and the
# engine calls its own server "server".
NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
E_MAIL = re.compile(r"[a-z0-9._%+-]+@[a-z0-9.-]+\.[a-z]{2,}")
HOST = re.compile(r"(?:[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?\.)*[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?")
RESERVED = ("server", "client", "admin", "relay", "all")
EVERYWHERE, HERE = "0.0.0.0", "127.0.0.1"
KEYS: dict[str, tuple[str, ...]] = {
    "": ("name", "hub", "sites", "operators", "certificates"),
    "hub": ("name", "address", "port", "bind"),
    "sites": ("names",),
    "operators": ("names",),
    "certificates": ("days",),
}
TEXT = """# Who takes part in this federation. Next: semifl deploy kits {file}

name = {name}                  # of the whole project

[hub]                          # the machine with the labels; sites and operators connect to it
name = {hub}
address = {address}            # by which all the others reach the hub: a host name or an IPv4 address
port = {port}                  # the only port that has to be open, and only at the hub
{bind}
[sites]                        # the machines with the pictures: they only connect out
names = {sites}

[operators]                    # the people who may start and stop runs, by e-mail address
names = {operators}

[certificates]
days = {days}                  # how long a kit is valid; 'semifl deploy renew' makes new ones
"""


@dataclass(frozen=True)
class Project:
    """The names behind a federation. Build it with `make`, which checks them."""

    name: str
    hub: str
    address: str
    port: int
    bind: str
    sites: tuple[str, ...]
    operators: tuple[str, ...]
    days: int

    @property
    def site_order(self) -> tuple[str, ...]:
        """The sites in the order in which a local run would find their folders: a site's place is its client number."""
        return tuple(sorted(self.sites, key=os.fsencode))

    @property
    def kinds(self) -> dict[str, str]:
        """Every name that gets a kit, and which kind: the hub first, then sites, then operators."""
        return {
            self.hub: "hub",
            **dict.fromkeys(self.site_order, "site"),
            **dict.fromkeys(self.operators, "operator"),
        }

    def text(self, file: str = "project.toml") -> str:
        """The commented file. `bind` is written only if it is not what the address implies."""
        bind = "" if self.bind == bind_for(self.address) else f"bind = {scalar(self.bind)}\n"
        values = {"name": self.name, "hub": self.hub, "address": self.address, "port": self.port, "days": self.days}
        values |= {"sites": list(self.sites), "operators": list(self.operators)}
        text = TEXT.format(file=file, bind=bind, **{key: scalar(value) for key, value in values.items()})
        return _align(text)


def make(
    name: str,
    address: str,
    sites: Iterable[str],
    operators: Iterable[str],
    *,
    hub: str = "hub",
    port: int = 8002,
    bind: str | None = None,
    days: int = 360,
) -> Project:
    """A project whose names are known to be safe as file names, in certificates and on a command line."""
    project = Project(name, hub, address, port, bind or bind_for(address), tuple(sites), tuple(operators), days)
    for what, word in (("name", name), ("hub.name", hub), *(("sites.names", site) for site in project.sites)):
        _check_name(what, word)
    _check_hub(project)
    for operator in project.operators:
        if not E_MAIL.fullmatch(operator) or len(operator) > 64:
            raise UserError(f"operators.names: {operator!r} is not an e-mail address in small letters, 64 at most")
    _check_who(project)
    if not 1 <= days <= 3650:
        raise UserError(f"certificates.days = {days} is not between 1 and 3650")
    return project


def read(path: Path) -> Project:
    """The project in a file; whatever is wrong with it is told in one sentence."""
    try:
        table = from_toml(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"there is no {path}: make one with 'semifl deploy init {path}'") from error
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:  # bad syntax, another encoding, endless nesting
        raise UserError(f"{path} is not valid TOML: {error}") from error
    try:
        return _from_table(table)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error


def bind_for(address: str) -> str:
    """Where the hub listens: on every network, unless its address says that all of it happens on one machine."""
    if address == "localhost":
        return HERE
    try:
        return HERE if ipaddress.ip_address(address).is_loopback else EVERYWHERE
    except ValueError:
        return EVERYWHERE


def _from_table(table: dict[str, Any]) -> Project:
    for section, known in KEYS.items():
        inner = table if not section else table.get(section, {})
        if not isinstance(inner, dict):
            raise UserError(f"{section} has to be a table, [{section}]")
        for key in inner:
            if key not in known:
                whole = f"{section}.{key}" if section else key
                raise UserError(f"{whole} is not a key of a project{did_you_mean(key, known)}")
    return make(
        _value(table, "", "name", str),
        _value(table, "hub", "address", str),
        _names(table, "sites"),
        _names(table, "operators"),
        hub=_value(table, "hub", "name", str, "hub"),
        port=_value(table, "hub", "port", int, 8002),
        bind=_value(table, "hub", "bind", str, "") or None,
        days=_value(table, "certificates", "days", int, 360),
    )


def _value(table: dict[str, Any], section: str, key: str, kind: type, default: Any = None) -> Any:
    value = (table.get(section, {}) if section else table).get(key, default)
    whole = f"{section}.{key}" if section else key
    if value is None:
        raise UserError(f"{whole} is missing")
    if type(value) is not kind:
        raise UserError(f"{whole} = {value!r} has to be {'a whole number' if kind is int else 'a text'}")
    return value


def _names(table: dict[str, Any], section: str) -> list[str]:
    names = _value(table, section, "names", list)
    if not all(isinstance(name, str) for name in names):
        raise UserError(f"{section}.names has to be a list of texts")
    return list(names)


def _check_name(what: str, word: str) -> None:
    if not NAME.fullmatch(word):
        raise UserError(f"{what}: {word!r} may hold small letters, digits and inner hyphens only, 63 at most")
    if word in RESERVED:
        raise UserError(f"{what}: {word!r} has a meaning of its own in the engine; take another name")


def _check_hub(project: Project) -> None:
    if ":" in project.address:
        raise UserError(f"hub.address = {project.address!r}: no port and no IPv6 here; the port has its own key")
    if not HOST.fullmatch(project.address) or len(project.address) > 253:
        raise UserError(f"hub.address = {project.address!r} is neither a host name nor an IPv4 address")
    if not 1 <= project.port <= 65535:
        raise UserError(f"hub.port = {project.port} is not between 1 and 65535")
    if project.bind not in (EVERYWHERE, HERE):
        raise UserError(f"hub.bind = {project.bind!r} is neither {EVERYWHERE!r} (every network) nor {HERE!r}")


def _check_who(project: Project) -> None:
    if not project.sites:
        raise UserError("sites.names is empty: a federation needs a site")
    if not project.operators:
        raise UserError("operators.names is empty: somebody has to start the runs")
    for what, names in (("sites.names", project.sites), ("operators.names", project.operators)):
        for name in names:
            if names.count(name) > 1:
                raise UserError(f"{what} holds {name!r} twice")
    if project.hub in project.sites:
        raise UserError(f"hub.name = {project.hub!r} is also the name of a site")


def _align(text: str) -> str:
    """Put the comments behind values into one column, whatever the lengths of the values."""
    lines = []
    for line in text.splitlines():
        code, mark, comment = line.partition("  # ")
        lines.append(f"{code.rstrip():<30} # {comment.strip()}" if mark and code.strip() else line)
    return "\n".join(lines) + "\n"

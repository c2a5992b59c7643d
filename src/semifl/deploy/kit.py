"""A kit: the folder that makes a machine the hub, a site, or an operator's machine, and the sealed file it comes in."""

from __future__ import annotations

import shutil
import tempfile
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from os import environ
from pathlib import Path
from typing import Any

from semifl import __version__
from semifl.deploy import sealing
from semifl.deploy.project import E_MAIL, NAME
from semifl.errors import UserError
from semifl.toml import scalar

PASSPHRASE = "SEMIFL_KIT_PASSPHRASE"
SUFFIX = ".kit"
WARN_DAYS = 30
# Policy and ledger are the site's own and in no sealed file: a new folder would begin without them.
OPEN_AGAIN = "open the kit again, into another folder, and take policy.toml and memory/ of this one along"
WHOSE = {"hub": "the hub", "site": "a site", "operator": "an operator"}
NEEDED = {"hub": "the hub's", "site": "a site's", "operator": "an operator's"}
FIELDS: dict[str, type] = {
    "kind": str, "name": str, "project": str, "made": datetime, "expires": date, "version": str,
    "hub": str, "address": str, "port": int, "bind": str, "sites": list,
}  # fmt: skip
TEXT = "# Made by 'semifl deploy kits'. Do not edit; a site's wishes belong in policy.toml.\n\n"


@dataclass(frozen=True)
class Kit:
    """An opened kit. `sites` are in the order that gives each its client number."""

    folder: Path
    kind: str
    name: str
    project: str
    made: datetime
    expires: date
    version: str
    hub: str
    address: str
    port: int
    bind: str
    sites: tuple[str, ...]

    @property
    def startup(self) -> Path:
        """Certificate, key, and where the hub is: what came with the kit and stays as it is."""
        return self.folder / "startup"

    @property
    def engine(self) -> Path:
        """The engine's own folder: what its commands can name lies in there, and nothing of ours does."""
        return self.folder if self.kind == "operator" else self.folder / "engine"

    @property
    def local(self) -> Path:
        """What the engine may do on this machine: written anew at each start."""
        return self.engine / "local"

    @property
    def policy(self) -> Path:
        return self.folder / "policy.toml"

    @property
    def storage(self) -> Path:
        """Jobs of the engine, at the hub."""
        return self.folder / "storage"

    @property
    def runs(self) -> Path:
        """Run directories and checkpoints, at the hub."""
        return self.folder / "runs"

    @property
    def memory(self) -> Path:
        """What a site keeps between rounds."""
        return self.folder / "memory"

    @property
    def logs(self) -> Path:
        return self.folder / "logs"

    @property
    def number(self) -> int:
        """The client number of this site."""
        return self.sites.index(self.name)

    def days_left(self, today: date | None = None) -> int:
        """Days until the certificate ends; negative afterwards."""
        return (self.expires - (today or datetime.now(UTC).date())).days

    def text(self) -> str:
        """The content of kit.toml."""
        lines = []
        for key in FIELDS:
            value = getattr(self, key)
            written = value.isoformat() if isinstance(value, date) else scalar(value)
            lines.append(f"{key} = {written}\n")
        return TEXT + "".join(lines)

    def header(self) -> dict[str, str]:
        """What the sealed file says to anybody who holds it."""
        keys = ("kind", "name", "project")
        return {**{key: getattr(self, key) for key in keys}, "made": self.made.isoformat()}


def read_kit(folder: Path) -> Kit:
    """The kit that a folder is."""
    file = folder / "kit.toml"
    try:
        table: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UserError(f"{folder} is not a kit: it has no kit.toml") from error
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{file} is damaged: {OPEN_AGAIN}") from error
    sound = table.keys() == FIELDS.keys() and all(type(table[key]) is kind for key, kind in FIELDS.items())
    if not sound or table["kind"] not in WHOSE or not _is_name(table["name"]):
        raise UserError(f"{file} is not that of a kit of this version of semifl ({__version__})")
    return Kit(folder=folder.resolve(), **{**table, "sites": tuple(table["sites"])})


def open_kit(path: Path, ask: Callable[[str], str] | None = None) -> Kit:
    """The kit at `path`: a folder, or a sealed file that is opened into a folder beside it.

    The passphrase comes from the environment, else from `ask`. A file that was opened before needs none again. A newer
    kit of the same name takes the place of the older one's certificates and leaves everything else as it is.
    """
    if path.is_dir():
        return read_kit(path)
    if not path.is_file():
        raise UserError(f"there is no kit {path}")
    header = read_header(path)
    folder = path.parent / header["name"]
    before = _kit_in(folder, path, header)
    if before is not None and before.made >= datetime.fromisoformat(header["made"]):
        if before.made.isoformat() != header["made"]:
            raise UserError(f"{path.name} is older than the kit in {folder}: use the newer file, or the folder itself")
        return before
    with tempfile.TemporaryDirectory(prefix=".opening-", dir=path.parent) as opening:
        fresh = Path(opening) / "kit"
        sealing.unseal(path, _passphrase(path, ask), fresh)
        found = read_kit(fresh)
        if found.header() != header:
            raise UserError(f"{path.name} does not hold the kit that it names: do not use it")
        if before is None:
            fresh.rename(folder)
        else:
            _renew(fresh, folder)
    return read_kit(folder)


def read_header(path: Path) -> dict[str, str]:
    """Whose kit a sealed file says it is."""
    header = sealing.read_header(path)
    try:
        datetime.fromisoformat(header["made"])
        sound = header.keys() == {"kind", "name", "project", "made"} and _is_name(header["name"])
    except (KeyError, ValueError):
        sound = False
    if not sound:
        raise UserError(f"{path} is not a kit of this version of semifl ({__version__})")
    return header


def expect(kit: Kit, kind: str, verb: str) -> Kit:
    """The kit, if it is of the kind that a verb needs."""
    if kit.kind != kind:
        raise UserError(
            f"{kit.folder.name} is the kit of {WHOSE[kit.kind]}; 'semifl deploy {verb}' needs {NEEDED[kind]}"
        )
    return kit


def expiry_warning(kit: Kit, today: date | None = None) -> str | None:
    """A sentence from thirty days before the end, nothing earlier, and an error afterwards."""
    refuse_slow_clock(kit, datetime.now(UTC))
    left = kit.days_left(today)
    renewed = "'semifl deploy renew', run by whoever made it, gives a new one"
    if left < 0:
        raise UserError(f"the kit of {kit.name} expired on {kit.expires}: {renewed}")
    if left > WARN_DAYS:
        return None
    return f"the kit of {kit.name} expires on {kit.expires}, in {left} day{'' if left == 1 else 's'}: {renewed}"


def refuse_slow_clock(kit: Kit, now: datetime) -> None:
    """Before its certificate begins nobody would let this machine in, or say why."""
    if now < kit.made - timedelta(days=1):
        raise UserError(
            f"this machine's clock says {now:%Y-%m-%d %H:%M} UTC, and the kit of {kit.name} was made on "
            f"{kit.made:%Y-%m-%d %H:%M} UTC: set the clock"
        )


def _is_name(name: str) -> bool:
    """The name becomes a folder's and part of a command line, so it is checked again where a kit is opened."""
    return bool(NAME.fullmatch(name) or E_MAIL.fullmatch(name))


def _kit_in(folder: Path, path: Path, header: dict[str, str]) -> Kit | None:
    """The kit that was opened from an earlier file of this name; anything else in its place is refused."""
    if not folder.exists():
        return None
    try:
        kit = read_kit(folder)
    except UserError as error:
        raise UserError(
            f"{path.name} would be opened into {folder}, where something else lies: move it away"
        ) from error
    if (kit.project, kit.name, kit.kind) != (header["project"], header["name"], header["kind"]):
        raise UserError(f"{folder} is a kit of the project {kit.project!r}, not of {header['project']!r}: move it away")
    return kit


def _passphrase(path: Path, ask: Callable[[str], str] | None) -> str:
    if given := environ.get(PASSPHRASE):
        return given
    if ask is None:
        raise UserError(f"{path.name} is sealed: put its passphrase into the environment variable {PASSPHRASE}")
    return ask(f"passphrase of {path.name}")


def _renew(fresh: Path, folder: Path) -> None:
    """New certificates into an old kit; kit.toml comes last, so that an interrupted renewal is begun again."""
    if (folder / "startup").exists():
        (folder / "startup").rename(fresh / "startup before")
    (fresh / "startup").rename(folder / "startup")
    shutil.move(fresh / "kit.toml", folder / "kit.toml")

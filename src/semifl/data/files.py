"""Where data sets live on this machine, and how they get there."""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import ClassVar, Protocol
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from semifl.data.progress import Progress, bar
from semifl.errors import UserError
from semifl.machine import home

BLOCK = 1 << 20
TIMEOUT = 30  # seconds of silence before a server counts as gone


@dataclass(frozen=True)
class Download:
    """One file of a data set; any of the URLs gives the same bytes."""

    name: str
    md5: str
    urls: tuple[str, ...]


@dataclass(frozen=True)
class Published:
    """The files of a data set and the page where people find them."""

    dataset: str
    page: str
    files: tuple[Download, ...]

    @property
    def by_hand(self) -> str:
        """What to put where, for people whose machine has no way to the internet."""
        return f"put {_listed([file.name for file in self.files])} from {self.page} into"


class Downloadable(Protocol):
    """A data set that `fetch` can bring here."""

    FILES: ClassVar[Published]


def place(dataset: str, root: str) -> Path:
    """The folder the user named, or the data set's home."""
    return Path(root).expanduser().absolute() if root else home(dataset)


def missing(published: Published, root: str) -> UserError:
    """The one sentence for a data set that is not there."""
    name = published.dataset
    drop = "leave out data.root and " if root else ""
    return UserError(
        f"The data set {name} is not in {place(name, root)}: {drop}run `semifl data get {name}`, "
        f"or {published.by_hand} that folder."
    )


def read(path: Path) -> bytes:
    """A file's bytes."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): check the file and its permissions.") from error


def md5_of(path: Path) -> str:
    """The checksum in which the publishers of these data sets state their files."""
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}): check the file and its permissions.") from error


def mismatch(path: Path | str, dataset: str) -> UserError:
    """The one sentence for a file whose bytes are not the published ones."""
    return UserError(
        f"{path} does not have the published checksum: delete it and fetch it again with `semifl data get {dataset}`, "
        "or set data.verify = false if the copy is your own."
    )


def fetch(source: type[Downloadable], root: str = "", progress: Progress | None = None) -> Path:
    """Download what is missing or damaged; the folder that then holds the data set."""
    published = source.FILES
    folder = place(published.dataset, root)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder} cannot be made ({error.strerror}): choose another folder.") from error
    for file in published.files:
        target = folder / file.name
        if target.is_file() and md5_of(target) == file.md5:
            continue
        if progress:
            _download(published, file, folder, progress)
        else:
            with bar(file.name, "bytes") as shown:
                _download(published, file, folder, shown)
    return folder


def _download(published: Published, file: Download, folder: Path, progress: Progress) -> None:
    """Try each URL in turn until the bytes are the published ones."""
    part = folder / f"{file.name}.part"
    failures = []
    for url in file.urls:
        try:
            _transfer(url, part, progress)
        except (OSError, HTTPException) as error:
            failures.append(f"{url}: {_reason(error)}")
            continue
        if md5_of(part) == file.md5:
            part.replace(folder / file.name)
            return
        part.unlink()
        failures.append(f"{url}: what came has a wrong checksum and was deleted")
    raise UserError(
        f"{file.name} could not be downloaded ({'; '.join(failures)}): "
        f"try again later, or {published.by_hand} {folder}."
    )


def _transfer(url: str, part: Path, progress: Progress) -> None:
    """Append to `part` what it lacks of the file behind `url`."""
    have = part.stat().st_size if part.exists() else 0
    headers = {"User-Agent": "semifl"} | ({"Range": f"bytes={have}-"} if have else {})
    try:
        response = urlopen(Request(url, headers=headers), timeout=TIMEOUT)
    except HTTPError as error:
        if error.code == 416 and have:  # nothing lies beyond what we have: the checksum decides
            return
        raise
    with response:
        if response.status != 206:  # the server does not resume and sends everything
            have = 0
        coming = int(response.headers.get("Content-Length") or 0)
        total = have + coming if coming else 0
        _check_room(part, coming)
        with part.open("ab" if have else "wb") as out:
            while block := response.read(BLOCK):
                out.write(block)
                have += len(block)
                progress(have, total)
    if have < total:
        raise ConnectionError(f"the connection broke off after {have:,} of {total:,} bytes, which are kept")


def _check_room(part: Path, coming: int) -> None:
    free = shutil.disk_usage(part.parent).free
    if coming > free:
        raise UserError(
            f"{part.parent} has room for {free / 1e6:,.0f} MB and {part.stem} needs {coming / 1e6:,.0f} MB more: "
            "free some space, or set SEMIFL_DATA to a folder on another disk."
        )


def _reason(error: OSError | HTTPException) -> str:
    cause = getattr(error, "reason", error) if not isinstance(error, HTTPError) else error
    return str(getattr(cause, "strerror", None) or cause or type(cause).__name__)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"

"""A folder of the user's own pictures."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import torch

from semifl.data.cache import keep, recall
from semifl.data.dataset import UNKNOWN, Dataset, Facts, moments
from semifl.data.files import home
from semifl.data.pictures import SUFFIXES, Decoded, UnreadableError, decode_all, pictures_below, refuse
from semifl.data.progress import Progress, bar
from semifl.errors import UserError

SPLIT = ("labeled", "clients", "test")  # the server's and the clients' pictures come apart
WHOLE = ("train", "test")  # every picture has a label, and the experiment decides who holds what
EXPECTED = "labeled/<class>/, clients/<site>/ and test/<class>/, or train/<class>/ and test/<class>/"
CHANNELS = {"auto": None, "grey": 1, "color": 3}
CACHE_FORMAT = 1  # to be raised when the same file would decode to other pixels
PATIENCE = 2000  # pictures that are decoded without a progress bar


class Entry(NamedTuple):
    """A picture and where it was found: in which part, and in the folder of which class or site."""

    part: str
    group: str
    path: Path


@dataclass(frozen=True)
class Folder:
    """Pictures in labeled/<class>/, clients/<site>/ and test/<class>/, or in train/<class>/ and test/<class>/.

    They may have any size and kind; they are decoded once and kept in the cache until a file changes.
    """

    root: str = ""
    size: int = 32
    unreadable: Literal["stop", "skip"] = "stop"
    channels: Literal["auto", "grey", "color"] = "auto"  # auto: grey if every picture is
    flip: bool = True  # a mirrored picture is as good an example as the original

    def load(self, progress: Progress | None = None) -> Dataset:
        root = self._checked_root()
        groups = {part: _subfolders(root / part) for part in _parts(root)}
        entries = [
            Entry(part, group, path)
            for part, names in groups.items()
            for group in names
            for path in pictures_below(root / part / group)
        ]
        _check(root, groups, entries)
        decoded = self._decode(root, entries, progress)
        lost = set(decoded.skipped)
        skipped = tuple(str(entries[position].path.relative_to(root)) for position in decoded.skipped)
        entries = [entry for position, entry in enumerate(entries) if position not in lost]
        _check(root, groups, entries)  # again: what was skipped may have been all there was
        return self._assemble(groups, entries, decoded, skipped)

    def _checked_root(self) -> Path:
        if not self.root:
            raise UserError(f"data.root is empty: name the folder of pictures that holds {EXPECTED}.")
        if self.size < 1:
            raise UserError(f"data.size is {self.size}: pictures need a side of at least one pixel.")
        root = Path(self.root).expanduser().absolute()
        if not root.is_dir():
            raise UserError(f"{root} is not a folder: let data.root name the folder of pictures that holds {EXPECTED}.")
        return root

    def _decode(self, root: Path, entries: list[Entry], progress: Progress | None) -> Decoded:
        """The pictures from the cache, or from their files."""
        settings = f"{root}|{self.size}|{self.channels}|{self.unreadable}"
        # The name says which folder, the fingerprint in which state: a new state replaces the old one on disk.
        kept = home("folder") / f"{hashlib.blake2b(os.fsencode(settings), digest_size=16).hexdigest()}.safetensors"
        fingerprint = _fingerprint(root, entries)
        if decoded := recall(kept, fingerprint):
            return decoded
        paths = [entry.path for entry in entries]
        waiting = progress is None and len(paths) > PATIENCE
        with bar("Decoding pictures", "pictures") if waiting else nullcontext(progress) as shown:
            try:
                decoded = decode_all(
                    paths, self.size, CHANNELS[self.channels], skip=self.unreadable == "skip", progress=shown
                )
            except UnreadableError as error:
                raise UserError(f'{error}: replace it, or set data.unreadable = "skip" to leave it out.') from error
        keep(kept, fingerprint, decoded)
        return decoded

    def _assemble(
        self, groups: dict[str, list[str]], entries: list[Entry], decoded: Decoded, skipped: tuple[str, ...]
    ) -> Dataset:
        """Put a label or a site to every picture; the test pictures are the last part."""
        classes, sites = groups["test"], groups.get("clients", [])
        known = ("labeled", "train", "test")
        label = {(part, name): number for part in known for number, name in enumerate(classes)}
        site = {("clients", name): number for number, name in enumerate(sites)}
        labels = torch.tensor([label.get(entry[:2], UNKNOWN) for entry in entries])
        training = sum(entry.part != "test" for entry in entries)
        labeled, site_of = None, None
        if sites:
            labeled = torch.arange(sum(entry.part == "labeled" for entry in entries))
            site_of = torch.tensor([site.get(entry[:2], UNKNOWN) for entry in entries[:training]])
        mean, std = moments(decoded.images[:training])
        facts = Facts(tuple(classes), mean, std, self.flip, channels=decoded.images.shape[1], size=self.size)
        return Dataset(
            facts,
            *(decoded.images[:training], labels[:training]),
            *(decoded.images[training:], labels[training:]),
            labeled=labeled,
            sites=tuple(sites),
            site_of=site_of,
            skipped=skipped,
        )


def _parts(root: Path) -> tuple[str, ...]:
    """The folders of the layout that `root` follows."""
    for layout in (SPLIT, WHOLE):
        if (root / layout[0]).is_dir():
            for part in layout:
                if not (root / part).is_dir():
                    raise UserError(f"{root / part} is missing: a folder of pictures holds {EXPECTED}.")
            return layout
    raise UserError(f"{root} has neither labeled/ nor train/: a folder of pictures holds {EXPECTED}.")


def _subfolders(folder: Path) -> list[str]:
    """The names of the classes or sites, sorted; a picture beside them would be lost silently, so it is an error."""
    try:
        inside = [path for path in folder.iterdir() if not (path.is_dir() and path.name.startswith("."))]
    except OSError as error:
        refuse(error)
    for path in inside:
        if path.suffix.lower() in SUFFIXES and not path.is_dir():
            kind = "site" if folder.name == "clients" else "class"
            raise UserError(f"{path} lies outside the folders of {folder}: move it into the folder of its {kind}.")
    return sorted((path.name for path in inside if path.is_dir()), key=os.fsencode)


def _check(root: Path, groups: dict[str, list[str]], entries: Iterable[Entry]) -> None:
    """Every class has pictures to learn from and to be tested with, and every site has pictures."""
    learned = next(iter(groups))
    for name in groups[learned]:
        if name not in groups["test"]:
            raise UserError(f"{root / 'test' / name} is missing: the class {name} of {learned}/ needs test pictures.")
    for name in groups["test"]:
        if name not in groups[learned]:
            raise UserError(
                f"{root / learned / name} is missing: the class {name} of test/ has no labeled picture to learn from."
            )
    for part, names in groups.items():
        if not names:
            raise UserError(f"{root / part} holds no pictures: a folder of pictures holds {EXPECTED}.")
    filled = {entry[:2] for entry in entries}
    for part, names in groups.items():
        for name in names:
            if (part, name) not in filled:
                kind = "site" if part == "clients" else "class"
                raise UserError(
                    f"{root / part / name} holds no readable picture: add some, or remove the folder of this {kind}."
                )


def _fingerprint(root: Path, entries: Iterable[Entry]) -> str:
    """A hash that changes when a picture is added, removed, renamed or written."""
    digest = hashlib.blake2b(f"format {CACHE_FORMAT}".encode(), digest_size=16)
    for entry in entries:
        try:
            state = entry.path.stat()
            stamp = f"{state.st_size}:{state.st_mtime_ns}"
        except OSError:  # a link that leads nowhere will be named when it is decoded
            stamp = "unreadable"
        digest.update(os.fsencode(entry.path.relative_to(root)) + f"\0{stamp}\0".encode())
    return digest.hexdigest()

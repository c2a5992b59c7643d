"""A folder of the user's own pictures."""

from __future__ import annotations

import hashlib
import os
import unicodedata
import warnings
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import torch
from torch import Tensor

from semifl import machine
from semifl.data.cache import keep, recall
from semifl.data.dataset import UNKNOWN, Dataset, Facts, moments
from semifl.data.depth import deepest
from semifl.data.listing import Groups, listed, parts_of
from semifl.data.mapped import decode_mapped, forget_mapped, is_large, recall_mapped
from semifl.data.pictures import (
    LARGEST_SIDE,
    Decoded,
    UnreadableError,
    decode,
    decode_all,
    is_picture,
    pictures_below,
    refuse,
)
from semifl.data.progress import Progress, bar
from semifl.data.survey import Entry, Survey, survey
from semifl.errors import UserError
from semifl.fields import Checked, Range
from semifl.machine import home
from semifl.registry import did_you_mean
from semifl.words import shown

SPLIT = ("labeled", "clients", "test")  # the server's and the clients' pictures come apart
WHOLE = ("train", "test")  # every picture has a label, and the experiment decides who holds what
EXPECTED = "labeled/<class>/, clients/<site>/ and test/<class>/, or train/<class>/ and test/<class>/"
CHANNELS = {"auto": None, "grey": 1, "color": 3}
CACHE_FORMAT = 3  # to be raised when the same file would decode to other pixels
MAPPED = ".pictures"  # of what is kept to be mapped
PATIENCE = 2000  # pictures that are decoded without a progress bar
LEARN = "has no labeled picture to learn from"
NAMED = 5  # unreadable files that a message names


@dataclass(frozen=True)
class Folder(Checked):
    """Pictures in labeled/<class>/, clients/<site>/ and test/<class>/, or in train/<class>/ and test/<class>/.

    They may have any size and kind; they are decoded once and kept in the cache until a file changes.
    """

    root: str = ""  # the folder of pictures
    size: Annotated[int, Range(2, LARGEST_SIDE)] = 32  # side of the square pictures, in pixels
    unreadable: Literal["stop", "skip"] = "stop"  # what to do about files that are no pictures
    channels: Literal["auto", "grey", "color"] = "auto"  # auto: grey if labeled and test pictures are
    bits: Annotated[int, Range(0, 16)] = 0  # of greys with more than eight; 0: those of the server's brightest pixel
    flip: bool = True  # a mirrored picture is as good an example as the original
    csv: str = ""  # a file below root with the columns file, label and perhaps site and part, instead of class folders

    def load(self, progress: Progress | None = None) -> Dataset:
        root = self._checked_root()
        groups, entries = self._found(root)
        _check(root, groups, entries, self.csv)
        decoded = self.read(root, entries, progress)
        if self.channels == "auto" and _only_clients_have_colour(decoded, entries):
            decoded = replace(self, channels="grey").read(root, entries, progress)
        lost = set(decoded.skipped)
        skipped = tuple(shown(entries[position].path.relative_to(root)) for position in decoded.skipped)
        entries = [entry for position, entry in enumerate(entries) if position not in lost]
        _check(root, groups, entries, self.csv)  # again: what was skipped may have been all there was
        names = tuple(shown(entry.path.relative_to(root)) for entry in entries)
        return self._assemble(groups, entries, decoded, names, skipped)

    def survey(self) -> Survey:
        """What lies there, file by file, before anything is decided."""
        root = self._checked_root()
        groups, entries = self._found(root)
        if not entries:
            raise UserError(_what_to_put_where(root, tuple(groups)))
        return survey(root, {part: list(names) for part, names in groups.items()}, entries, bool(self.csv))

    def _found(self, root: Path) -> tuple[Groups, list[Entry]]:
        """The folders of every part by the names of their classes or sites, and the pictures in them."""
        if self.csv:
            return listed(root, root / self.csv, self._listed_parts(root))
        groups = {part: subfolders(root / part) for part in self._parts(root)}
        return groups, [
            Entry(part, name, path)
            for part, folders in groups.items()
            for name, folder in folders.items()
            for path in pictures_below(folder)
        ]

    def _parts(self, root: Path) -> tuple[str, ...]:
        return _parts(root)

    def _listed_parts(self, root: Path) -> tuple[str, ...]:
        """The layout that the list follows."""
        named = parts_of(root, root / self.csv)
        layout = WHOLE if "train" in named else SPLIT
        for part in layout:
            if part not in named:
                raise UserError(
                    f"{root / self.csv} names no pictures for {part}: it needs some for {', '.join(layout)}"
                )
        if "train" in named and named - set(WHOLE):
            raise UserError(f"{root / self.csv} has pictures for train and for {min(named - set(WHOLE))}: choose one")
        return layout

    def _sites(self, groups: Groups) -> tuple[str, ...]:
        return tuple(groups.get("clients", {}))

    def _checked_root(self) -> Path:
        if not self.root:
            raise UserError(f"data.root is empty: name the folder of pictures that holds {EXPECTED}.")
        root = Path(self.root).expanduser().absolute()
        if not root.is_dir():
            raise UserError(f"{root} is not a folder: let data.root name the folder of pictures that holds {EXPECTED}.")
        _refuse_odd_name(root)  # a run's configuration says where its pictures lie
        return root

    def read(self, root: Path, entries: list[Entry], progress: Progress | None = None) -> Decoded:
        """The pictures from the cache, or from their files."""
        kept, fingerprint = self.kept_at(root), _fingerprint(root, entries)
        paths = [entry.path for entry in entries]
        large = is_large(len(paths), CHANNELS[self.channels], self.size)
        decoded = recall_mapped(kept.with_suffix(MAPPED), fingerprint) if large else recall(kept, fingerprint)
        if decoded is None or any(self._is_readable(paths[position], decoded.bits) for position in decoded.skipped):
            bits = self.bits or _bits(entries)
            decoded = self._decode_large(kept, fingerprint, paths, bits, progress) if large else None
            if decoded is None:
                self._refuse_too_much(len(paths))
                decoded = self._decode_files(paths, bits, progress)
                keep(kept, fingerprint, decoded)
        if decoded.skipped and self.unreadable == "stop":
            raise UserError(self._unreadable([paths[position] for position in decoded.skipped], decoded.bits))
        return decoded

    def kept_at(self, root: Path) -> Path:
        """The name says which folder, the fingerprint in which state: a new state replaces the old one on disk."""
        settings = f"{root}|{self.size}|{self.channels}|{self.bits}"
        return home("folder") / f"{hashlib.blake2b(os.fsencode(settings), digest_size=16).hexdigest()}.safetensors"

    def _is_readable(self, path: Path, bits: int) -> bool:
        """Whether a file that was left out can be read by now: a disk or a share may have been away for a moment."""
        try:
            decode(path, self.size, CHANNELS[self.channels], bits)
        except UnreadableError:
            return False
        return True

    def _unreadable(self, paths: list[Path], bits: int) -> str:
        """One sentence that names the first few, each with its reason."""
        reasons = []
        for path in paths[:NAMED]:
            try:
                decode(path, self.size, CHANNELS[self.channels], bits)  # as before: some fail in one way only
                reasons.append(f"{path} could not be read")  # but can be now
            except UnreadableError as error:
                reasons.append(str(error))
        more = f" and {len(paths) - NAMED} more" if len(paths) > NAMED else ""
        them = "it" if len(paths) == 1 else "them"
        return f'{", ".join(reasons)}{more}: replace {them}, or set data.unreadable = "skip" to leave {them} out.'

    def _refuse_too_much(self, pictures: int) -> None:
        needed, there = 3 * pictures * self.size**2, machine.memory()  # bytes; grey ones are told apart later
        if needed > there:
            raise UserError(
                f"data.size = {self.size} makes {needed / 1e9:,.1f} GB of {pictures:,} pictures, "
                f"and this machine has {there / 1e9:,.1f} GB of memory: choose a smaller one"
            )

    def _decode_large(
        self, kept: Path, fingerprint: str, paths: list[Path], bits: int, progress: Progress | None
    ) -> Decoded | None:
        """Into a file; None where it cannot be written."""
        shape = (len(paths), CHANNELS[self.channels] or 3, self.size, self.size)
        try:
            return decode_mapped(
                kept.with_suffix(MAPPED),
                fingerprint,
                shape,
                lambda into: self._decode_files(paths, bits, progress, into),
            )
        except OSError as error:
            warnings.warn(f"{kept.parent} cannot be written ({error}): all pictures stay in memory.", stacklevel=2)
            return None

    def _decode_files(
        self, paths: list[Path], bits: int, progress: Progress | None, into: Tensor | None = None
    ) -> Decoded:
        waiting = progress is None and len(paths) > PATIENCE
        with bar("Decoding pictures", "pictures") if waiting else nullcontext(progress) as shown:
            # All of them, also where an unreadable one will stop everything: a person wants to hear of all at once.
            return decode_all(paths, self.size, CHANNELS[self.channels], bits, progress=shown, into=into)

    def _assemble(
        self, groups: Groups, entries: list[Entry], decoded: Decoded, names: tuple[str, ...], skipped: tuple[str, ...]
    ) -> Dataset:
        """Put a label or a site to every picture; the test pictures are the last part."""
        classes, sites = groups["test"], self._sites(groups)
        known = ("labeled", "train", "test")
        label = {(part, name): number for part in known for number, name in enumerate(classes)}
        site = {("clients", name): number for number, name in enumerate(sites)}
        of_class = {name: number for number, name in enumerate(classes)}
        labels = torch.tensor([label.get(entry[:2], of_class.get(entry.label, UNKNOWN)) for entry in entries])
        training = sum(entry.part != "test" for entry in entries)
        labeled, site_of = None, None
        if sites:
            labeled = torch.arange(sum(entry.part == "labeled" for entry in entries))
            site_of = torch.tensor([site.get(entry[:2], UNKNOWN) for entry in entries[:training]])
        # Where clients' pictures come apart from the server's, the server cannot know their mean either.
        mean, std = moments(decoded.images[: training if labeled is None else len(labeled)])
        facts = Facts(tuple(classes), mean, std, self.flip, decoded.images.shape[1], self.size, decoded.bits)
        return Dataset(
            facts,
            *(decoded.images[:training], labels[:training]),
            *(decoded.images[training:], labels[training:]),
            labeled=labeled,
            sites=sites,
            site_of=site_of,
            names=names[:training],
            test_names=names[training:],
            skipped=skipped,
        )


def forget(kept: Path) -> None:
    """Remove what was decoded, but for pictures that a process still looks at."""
    kept.unlink(missing_ok=True)
    forget_mapped(kept.with_suffix(MAPPED))


def _bits(entries: list[Entry]) -> int:
    """The depth of the deep greys that the server has, or if it has none, of those that there are."""
    own = deepest([entry.path for entry in entries if entry.part != "clients"])
    return own or deepest([entry.path for entry in entries if entry.part == "clients"])


def _only_clients_have_colour(decoded: Decoded, entries: list[Entry]) -> bool:
    """Where clients' pictures come apart, the server's own decide whether all are grey: it sees no others."""
    lost = set(decoded.skipped)
    kept = [entry for position, entry in enumerate(entries) if position not in lost]
    own = torch.tensor([entry.part != "clients" for entry in kept])
    if bool(own.all()) or decoded.images.shape[1] == 1:
        return False
    pictures = decoded.images[own]
    return bool((pictures == pictures[:, :1]).all())


def _parts(root: Path) -> tuple[str, ...]:
    """The folders of the layout that `root` follows."""
    for layout in (SPLIT, WHOLE):
        if (root / layout[0]).is_dir():
            for part in layout:
                if not (root / part).is_dir():
                    raise UserError(f"{root / part} is missing: a folder of pictures holds {EXPECTED}.")
            return layout
    raise UserError(f"{root} has neither labeled/ nor train/: a folder of pictures holds {EXPECTED}.")


def subfolders(folder: Path) -> dict[str, Path]:
    """The folders of the classes or sites by name, sorted; a picture beside them would be lost, so it is an error.

    Names are compared letter by letter: macOS writes "ä" in two signs and others in one, and both mean one class.
    """
    try:
        inside = [path for path in folder.iterdir() if not (path.is_dir() and path.name.startswith("."))]
    except OSError as error:
        refuse(error)
    for path in inside:
        if not path.is_dir() and not path.name.startswith(".") and is_picture(str(path)):
            kind = "site" if folder.name == "clients" else "class"
            raise UserError(f"{path} lies outside the folders of {folder}: move it into the folder of its {kind}.")
    folders: dict[str, Path] = {}
    for path in (path for path in inside if path.is_dir()):
        _refuse_odd_name(path)  # a model and its card carry these names
        name = unicodedata.normalize("NFC", path.name)
        if name in folders:
            raise UserError(f"{folder} has two folders that are both called {name}: move their pictures into one.")
        folders[name] = path
    return dict(sorted(folders.items(), key=lambda item: os.fsencode(item[0])))


def _refuse_odd_name(folder: Path) -> None:
    """What a run writes is UTF-8, and so must be the names that it writes."""
    if shown(folder) != str(folder):
        raise UserError(f"{shown(folder)} has a name that is not UTF-8: rename the folder.")


def _check(root: Path, groups: Groups, entries: Sequence[Entry], csv: str) -> None:
    """Every class has pictures to learn from and to be tested with, and every site has pictures."""
    if not entries and all(groups.values()):
        raise UserError(_what_to_put_where(root, tuple(groups)))
    for part, names in groups.items():
        if not names:
            raise UserError(f"{root / part} holds no pictures: a folder of pictures holds {EXPECTED}.")
    filled = {entry[:2] for entry in entries}
    for part, names in groups.items():
        for name in names:
            if (part, name) not in filled:
                kind = "site" if part == "clients" else "class"
                listed = f"{root / csv} names no readable picture of the {kind} {name} for {part}"
                where = listed if csv else f"{root / part / name} holds no readable picture"
                raise UserError(f"{where}: add some, or remove the {'lines' if csv else 'folder'} of this {kind}.")
    if csv:
        _check_listed_classes(root, groups, entries, csv)
    else:
        _check_classes(root, groups)


def _check_listed_classes(root: Path, groups: Groups, entries: Sequence[Entry], csv: str) -> None:
    """As `_check_classes`; a class that is missing elsewhere is often a mistyped label, so a picture of it is named."""
    learned = next(iter(groups))
    for part, other, lack in ((learned, "test", "needs test pictures"), ("test", learned, LEARN)):
        for name in groups[part]:
            if name not in groups[other]:
                first = next(entry.path for entry in entries if entry[:2] == (part, name)).relative_to(root)
                raise UserError(
                    f"{root / csv}: the class {name} of {part}/ {lack} (it is the label of {shown(first)})"
                    f"{did_you_mean(name, groups[other]) or '.'}"
                )


def _check_classes(root: Path, groups: Groups) -> None:
    """What is learned is tested, and the other way round."""
    learned = next(iter(groups))
    for name in groups[learned]:
        if name not in groups["test"]:
            raise UserError(
                f"{root / 'test' / name} is missing: the class {name} of {learned}/ needs test pictures"
                f"{did_you_mean(name, groups['test']) or '.'}"
            )
    for name in groups["test"]:
        if name not in groups[learned]:
            raise UserError(
                f"{root / learned / name} is missing: the class {name} of test/ {LEARN}"
                f"{did_you_mean(name, groups[learned]) or '.'}"
            )


def _what_to_put_where(root: Path, parts: tuple[str, ...]) -> str:
    what = {
        "labeled": "the server's pictures into labeled/<class>/",
        "clients": "the unlabeled ones into clients/<site>/",
        "train": "pictures to learn from into train/<class>/",
        "test": "labeled ones to measure with into test/<class>/",
    }
    *first, last = (what[part] for part in parts)
    return f"{root} holds no pictures yet: put {', '.join(first)} and {last}, one folder for each."


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

"""What hub and sites hold: the hub's labeled and test pictures, and the unlabeled pictures of one site."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from semifl.data.dataset import Dataset, Facts
from semifl.data.datasets.folder import Folder, forget, subfolders
from semifl.data.listing import Groups
from semifl.data.pictures import pictures_below
from semifl.data.progress import Progress
from semifl.data.survey import Entry
from semifl.durable import replace_text
from semifl.errors import UserError
from semifl.words import printable

log = logging.getLogger(__name__)

HUB_PICTURES = "semifl.deploy.pictures:HubPictures"  # Value of data.name in the configuration of a hub's run.
HUBS_OWN_MATTER = "the hub cannot read its pictures as this run asks ([data]); its log says why, and its owner can help"
OTHER_PICTURES = "the pictures of this site are no longer those with which it took part"  # for its owner
CHANNELS = {1: "grey", 3: "color"}
PART = 256  # pictures that are looked at together


@dataclass(frozen=True)
class HubPictures(Folder):
    """labeled/<class>/ and test/<class>/ at the hub; the clients' pictures lie on the machines of these sites."""

    sites: tuple[str, ...] = ()  # in the order of their client numbers

    def load(self, progress: Progress | None = None) -> Dataset:
        """Read the pictures of a run; what is said of them goes to operators, so it has no path, cell or header."""
        try:
            data = super().load(progress)
        except UserError as error:
            log.warning("%s", printable(error))
            raise UserError(HUBS_OWN_MATTER) from error
        names = tuple(f"picture {number} to learn from" for number in range(1, len(data.names) + 1))
        return replace(
            data, names=names, test_names=tuple(f"test picture {n + 1}" for n in range(len(data.test_names)))
        )

    def _checked_root(self) -> Path:
        root = Path(self.root)
        if not root.is_dir():
            raise UserError(f"{root} is not a folder: the hub's folder holds labeled/<class>/ and test/<class>/.")
        return root

    def _parts(self, root: Path) -> tuple[str, ...]:
        for part in ("labeled", "test"):
            if not (root / part).is_dir():
                raise UserError(f"{root / part} is missing: the hub's folder holds labeled/<class>/ and test/<class>/.")
        return ("labeled", "test")

    def _listed_parts(self, root: Path) -> tuple[str, ...]:
        return ("labeled", "test")

    def _sites(self, groups: Groups) -> tuple[str, ...]:
        return self.sites


class SitePictures(NamedTuple):
    images: Tensor  # uint8
    skipped: int  # files that could not be read
    own: tuple[Tensor, Tensor] | None  # the site's own labeled pictures


def count_pictures(root: Path) -> int:
    """How many picture files lie below a folder."""
    if not root.is_dir():
        raise UserError(f"{root} is not a folder")
    found = len(pictures_below(root))
    if not found:
        raise UserError(f"{root} holds no pictures: put this site's pictures there, in folders or not")
    return found


def compare_with_before(images: Tensor, folder: Path) -> str:
    """What has changed if a run began here with other pictures, or nothing. The fingerprint never leaves the site."""
    path = folder / "pictures.json"
    now = {"pictures": len(images), "sha256": _sha256(images)}
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        before = now
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(path, json.dumps(now) + "\n")
    if before == now:
        return ""
    return f"{before.get('pictures')} when this run was last here, {now['pictures']} now"


def _sha256(images: Tensor) -> str:
    """Part by part: all of them may be more than memory holds."""
    digest = hashlib.sha256()
    for part in torch.split(images, PART):
        digest.update(part.contiguous().numpy().data)
    return digest.hexdigest()


def read_site(
    root: Path, labels: Path | None, facts: Facts, note: Path, progress: Progress | None = None
) -> SitePictures:
    """All pictures below `root` as the order wants them, and those of `labels` with the classes of their folders.

    They are kept on disk as the last order wanted them and no other; `note` is the file that says where.
    """
    count_pictures(root)
    entries = [Entry("site", "", path) for path in pictures_below(root)]
    with _kept_once(note, [_folder(each, facts).kept_at(each) for each in (root, labels) if each]):
        decoded = _folder(root, facts).read(root, entries, progress)
        if not len(decoded.images):
            raise UserError(f"none of the {len(entries)} pictures below {root} can be read")
        own = _read_own(labels, facts, progress) if labels else None
    return SitePictures(decoded.images, len(decoded.skipped), own)


@contextmanager
def _kept_once(note: Path, wanted: list[Path]) -> Iterator[None]:
    """A hub may ask for many sizes, and each would stay on this site's disk: the earlier ones are removed."""
    try:
        noted = [Path(name) for name in json.loads(note.read_text(encoding="utf-8"))]
    except (OSError, ValueError, TypeError):
        noted = []
    note.parent.mkdir(parents=True, exist_ok=True)
    replace_text(note, json.dumps([str(path) for path in (*noted, *wanted)]))  # first: nothing is kept unnoted
    for path in noted:
        if path not in wanted:
            forget(path)
    yield
    replace_text(note, json.dumps([str(path) for path in wanted]))


def _read_own(root: Path, facts: Facts, progress: Progress | None) -> tuple[Tensor, Tensor] | None:
    """None unless every folder is one of the run's classes."""
    folders = subfolders(root)
    known = {name: number for number, name in enumerate(facts.class_names)}
    if not folders.keys() <= known.keys():
        # A hub that names some of the classes could count this site's folders one by one.
        return None
    entries = [Entry("labeled", name, path) for name in folders for path in pictures_below(folders[name])]
    decoded = _folder(root, facts).read(root, entries, progress)
    kept = [entry for position, entry in enumerate(entries) if position not in set(decoded.skipped)]
    return decoded.images, torch.tensor([known[entry.group] for entry in kept], dtype=torch.int64)


def _folder(root: Path, facts: Facts) -> Folder:
    # One unreadable file must not keep a whole site out; how many there are is said.
    return Folder(str(root), facts.size, "skip", CHANNELS[facts.channels], facts.bits)  # type: ignore[arg-type]

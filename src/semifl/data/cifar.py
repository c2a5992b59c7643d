"""What CIFAR-10 and CIFAR-100 share: pickled batches of 32×32 pictures, in a folder or in a tar archive."""

from __future__ import annotations

import hashlib
import tarfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from semifl.data.dataset import Dataset, Facts
from semifl.data.files import Published, mismatch, missing, place, read
from semifl.data.formats import unpickle
from semifl.errors import UserError

Rgb = tuple[float, float, float]


@dataclass(frozen=True)
class Edition:
    """One of the two data sets: its files with their checksums, and the words it uses inside them."""

    published: Published
    folder: str
    train: tuple[str, ...]
    test: str
    meta: str
    md5: dict[str, str]
    labels: str
    names: str
    mean: Rgb
    std: Rgb

    def load(self, root: str, verify: bool) -> Dataset:
        """Read the batches, in the publisher's order."""
        batches = self._batches(root, verify)
        class_names = _words(_entry(batches[self.meta], self.names, self.meta), self.meta)
        parts = [self._examples(batches[name], name, len(class_names)) for name in self.train]
        images, labels = zip(*parts, strict=True)
        test_images, test_labels = self._examples(batches[self.test], self.test, len(class_names))
        facts = Facts(class_names, self.mean, self.std, may_flip=True, channels=3, size=32)
        return Dataset(facts, torch.cat(images), torch.cat(labels), test_images, test_labels)

    def _batches(self, root: str, verify: bool) -> dict[str, Any]:
        """The content of every file by its name; the bytes that are unpickled are the bytes that were verified."""
        archive = self.published.files[0].name
        where = place(self.published.dataset, root)
        # An incomplete folder does not count, so a damaged file can be deleted and the archive fetched in its stead.
        for folder in (where / self.folder, where):
            if all((folder / name).is_file() for name in self.md5):
                raw = {str(folder / name): read(folder / name) for name in self.md5}
                break
        else:
            if not (where / archive).is_file():
                raise missing(self.published, root)
            raw = _members(where / archive, [f"{self.folder}/{name}" for name in self.md5])
        if verify:
            for (path, data), md5 in zip(raw.items(), self.md5.values(), strict=True):
                if hashlib.md5(data, usedforsecurity=False).hexdigest() != md5:
                    raise mismatch(path, self.published.dataset)
        return {name: unpickle(data, path) for name, (path, data) in zip(self.md5, raw.items(), strict=True)}

    def _examples(self, batch: Any, name: str, classes: int) -> tuple[Tensor, Tensor]:
        """Pictures [n, 3, 32, 32] and labels of one batch."""
        try:
            pixels = np.asarray(_entry(batch, "data", name))
            labels = np.asarray(_entry(batch, self.labels, name))
        except (TypeError, ValueError) as error:
            raise UserError(f"{name} does not hold arrays ({error}): fetch the data set again.") from error
        if pixels.dtype != np.uint8 or labels.ndim != 1 or pixels.shape != (len(labels), 3 * 32 * 32):
            raise UserError(f"{name} does not hold one row of 3072 bytes per label: fetch the data set again.")
        if labels.dtype.kind != "i" or not labels.size or labels.min() < 0 or labels.max() >= classes:
            raise UserError(f"{name} has labels outside 0 to {classes - 1}: fetch the data set again.")
        return torch.from_numpy(pixels.reshape(-1, 3, 32, 32).copy()), torch.from_numpy(labels.astype(np.int64))


def _members(archive: Path, names: Iterable[str]) -> dict[str, bytes]:
    """The named members of a tar archive, read in place: nothing is extracted, so no member can escape."""
    wanted = {name: b"" for name in names}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                if member.name in wanted and member.isfile() and (stream := tar.extractfile(member)):
                    wanted[member.name] = stream.read()
    except (OSError, EOFError, tarfile.TarError, zlib.error) as error:
        raise UserError(f"{archive} is damaged ({error}): delete it and fetch it again.") from error
    if absent := [name for name, data in wanted.items() if not data]:
        raise UserError(f"{archive} has no member {absent[0]}: delete it and fetch it again.")
    return {f"{archive}/{name}": data for name, data in wanted.items()}


def _entry(batch: Any, key: str, name: str) -> Any:
    """A value of a batch; the original files have bytes for keys, copies made with Python 3 have strings."""
    if isinstance(batch, dict):
        for spelling in (key.encode(), key):
            if spelling in batch:
                return batch[spelling]
    raise UserError(f"{name} has no entry {key}: fetch the data set again.")


def _words(names: Any, name: str) -> tuple[str, ...]:
    """The names of the classes."""
    if not isinstance(names, list) or not names or not all(isinstance(word, (bytes, str)) for word in names):
        raise UserError(f"{name} does not name the classes: fetch the data set again.")
    return tuple(word.decode(errors="replace") if isinstance(word, bytes) else word for word in names)

"""A NumPy archive of pictures and labels: train_images, train_labels, test_images, test_labels."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch

from semifl import machine
from semifl.data.arrays import as_labels, as_pictures, channels_of, to_square
from semifl.data.dataset import Dataset, Facts, moments
from semifl.data.pictures import LARGEST_SIDE
from semifl.errors import UserError
from semifl.fields import Checked, Range

NEEDED = ("train_images", "train_labels", "test_images", "test_labels")


@dataclass(frozen=True)
class Npz(Checked):
    """Pictures and labels as arrays in one .npz file; who is labeled and who holds what, the configuration decides.

    Arrays beside the four, such as val_images, are left alone.
    """

    root: str = ""  # the .npz file
    size: Annotated[int, Range(0, LARGEST_SIDE)] = 0  # Side in pixels of the cropped pictures; 0 keeps square ones.
    classes: str = ""  # their names in the order of the labels, with commas between; numbers if left out
    flip: bool = True  # a mirrored picture is as good an example as the original

    def load(self) -> Dataset:
        arrays = _read(Path(self.root).expanduser())
        train, test = (
            as_pictures(arrays[f"{part}_images"], f"{part}_images of {self.root}", "" if self.size else "data.size")
            for part in ("train", "test")
        )
        side, channels = self.size or min(train[0].shape[2:]), channels_of([train, test])
        images, test_images = (to_square(part, side, channels) for part in (train, test))
        labels = as_labels(arrays["train_labels"], len(images), f"train_labels of {self.root}")
        test_labels = as_labels(arrays["test_labels"], len(test_images), f"test_labels of {self.root}")
        classes = self._names(int(torch.cat([labels, test_labels]).max()) + 1)
        facts = Facts(classes, *moments(images), self.flip, channels, side)
        own, tested = (
            tuple(f"{name}[{place}]" for place in range(len(part)))
            for name, part in (("train_images", images), ("test_images", test_images))
        )
        return Dataset(facts, images, labels, test_images, test_labels, names=own, test_names=tested)

    def _names(self, count: int) -> tuple[str, ...]:
        if not self.classes:
            return tuple(str(label) for label in range(count))
        names = tuple(name.strip() for name in self.classes.split(","))
        if len(names) != count or len(set(names)) != count or not all(names):
            raise UserError(f"data.classes = {self.classes!r} should be {count} different names, as there are labels")
        return names


def _read(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """The four arrays; an archive cannot run code, nor take more memory than there is."""
    if not str(path) or path.is_dir() or not path.exists():
        raise UserError(f"there is no file {path}: let data.root name a .npz file with {', '.join(NEEDED)}")
    try:
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(each.file_size for each in archive.infolist())
        if unpacked > machine.memory():
            raise UserError(f"{path} unpacks to {unpacked / 1e9:,.1f} GB, and this machine has less memory")
        with np.load(path, allow_pickle=False) as archive:
            missing = [name for name in NEEDED if name not in archive]
            if missing:
                raise UserError(f"{path} has no {missing[0]}: it holds {', '.join(sorted(archive)[:10])}")
            return {name: np.asarray(archive[name]) for name in NEEDED}
    except UserError:
        raise
    except (Exception, MemoryError) as error:  # archives and headers of arrays are damaged in many ways
        raise UserError(f"{path} is not a NumPy archive that can be read ({' '.join(str(error).split())})") from error

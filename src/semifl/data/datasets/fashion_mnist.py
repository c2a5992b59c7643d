"""Fashion-MNIST (Xiao et al. 2017): 60,000 training and 10,000 test pictures of clothes, 28×28, grey."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from semifl.data.dataset import Dataset, Facts, moments
from semifl.data.files import Download, Published, missing, place
from semifl.data.formats import read_idx
from semifl.errors import UserError

DEBIAN = Path("/usr/share/datasets/fashion-mnist")  # where Debian's package dataset-fashion-mnist puts the files
SERVER = "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com"
CLASSES = ("T-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot")


def _file(name: str, md5: str) -> Download:
    return Download(name, md5, (f"{SERVER}/{name}",))


@dataclass(frozen=True)
class FashionMnist:
    """The publisher's IDX files, plain or compressed.

    Only a download is compared with the published checksums: Debian's files are compressed anew, and the
    format itself says how many bytes there must be.
    """

    root: str = ""  # the folder that holds the four files; empty: the default place, then Debian's

    FILES: ClassVar[Published] = Published(
        dataset="fashion_mnist",
        page="https://github.com/zalandoresearch/fashion-mnist",
        files=(
            _file("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d"),
            _file("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe"),
            _file("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79"),
            _file("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310"),
        ),
    )

    def load(self) -> Dataset:
        train_images, train_labels, test_images, test_labels = self._paths()
        train = _examples(train_images, train_labels)
        test = _examples(test_images, test_labels)
        mean, std = moments(train[0])
        return Dataset(Facts(CLASSES, mean, std, may_flip=True, channels=1, size=28), *train, *test)

    def _paths(self) -> list[Path]:
        places = [place(self.FILES.dataset, self.root)] + ([] if self.root else [DEBIAN])
        for folder in places:
            found = [path for file in self.FILES.files if (path := _plain_or_packed(folder / file.name))]
            if len(found) == len(self.FILES.files):
                return found
        raise missing(self.FILES, self.root)


def _plain_or_packed(packed: Path) -> Path | None:
    return next((path for path in (packed.with_suffix(""), packed) if path.is_file()), None)


def _examples(images: Path, labels: Path) -> tuple[Tensor, Tensor]:
    """Pictures [n, 1, 28, 28] and labels."""
    pixels, classes = read_idx(images), read_idx(labels)
    if pixels.shape[1:] != (28, 28) or classes.shape != pixels.shape[:1]:
        raise UserError(f"{images} and {labels.name} do not hold one 28×28 picture per label: fetch them again.")
    if not classes.size or classes.max() >= len(CLASSES):
        raise UserError(f"{labels} holds no labels or labels above {len(CLASSES) - 1}: fetch the file again.")
    return torch.from_numpy(pixels[:, None].copy()), torch.from_numpy(classes.astype(np.int64))

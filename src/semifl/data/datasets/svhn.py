"""Street View House Numbers (Netzer et al. 2011), cropped digits: 73,257 training and 26,032 test pictures."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from semifl.data.dataset import Dataset, Facts
from semifl.data.files import Download, Published, md5_of, mismatch, missing, place
from semifl.data.formats import read_mat
from semifl.errors import UserError


@dataclass(frozen=True)
class Svhn:
    """The publisher's MATLAB files `train` and `test`; `extra` is not used, as in the paper."""

    root: str = ""  # the folder that holds `train_32x32.mat` and `test_32x32.mat`; empty: the default place
    verify: bool = True  # compare every file with the published checksum

    FILES: ClassVar[Published] = Published(
        dataset="svhn",
        page="http://ufldl.stanford.edu/housenumbers/",
        files=(
            Download(
                name="train_32x32.mat",
                md5="e26dedcc434d2e4c54c9b2d4a06d8373",
                urls=("http://ufldl.stanford.edu/housenumbers/train_32x32.mat",),
            ),
            Download(
                name="test_32x32.mat",
                md5="eb5a983be6a315427106f1b164d9cef3",
                urls=("http://ufldl.stanford.edu/housenumbers/test_32x32.mat",),
            ),
        ),
    )

    def load(self) -> Dataset:
        folder = place(self.FILES.dataset, self.root)
        if not all((folder / file.name).is_file() for file in self.FILES.files):
            raise missing(self.FILES, self.root)
        if self.verify:
            for file in self.FILES.files:
                if md5_of(folder / file.name) != file.md5:
                    raise mismatch(folder / file.name, self.FILES.dataset)
        train, test = (_examples(folder / file.name) for file in self.FILES.files)
        facts = Facts(
            class_names=tuple("0123456789"),
            mean=(0.4377, 0.4438, 0.4728),
            std=(0.1980, 0.2010, 0.1970),
            may_flip=False,
            channels=3,
            size=32,
        )
        return Dataset(facts, *train, *test)


def _examples(path: Path) -> tuple[Tensor, Tensor]:
    """Pictures [n, 3, 32, 32] and labels; MATLAB counts from one, so the publisher calls the digit 0 "10"."""
    pixels, labels = read_mat(path, "X", "y")
    if pixels.dtype != np.uint8 or pixels.shape != (32, 32, 3, labels.size):
        raise UserError(f"{path} does not hold one 32×32 colour picture per label: fetch the file again.")
    if labels.dtype.kind not in "iu" or not labels.size or labels.min() < 1 or labels.max() > 10:
        raise UserError(f"{path} holds no labels or labels outside 1 to 10: fetch the file again.")
    images = np.ascontiguousarray(pixels.transpose(3, 2, 0, 1))
    return torch.from_numpy(images), torch.from_numpy(labels.reshape(-1).astype(np.int64) % 10)

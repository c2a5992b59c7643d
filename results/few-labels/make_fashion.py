"""Small Fashion-MNIST sets for this study: 2,040 training and 2,000 test pictures of 16 × 16 pixels, twice.

`python results/few-labels/make_fashion.py FOLDER OUT` reads the four .gz files of Fashion-MNIST in FOLDER (as in
Debian's package dataset-fashion-mnist) and writes two files to OUT: fashion.npz, which the tables use, and
fashion-held-out.npz, on which settings are chosen: training pictures that the first does not have.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from semifl.data.datasets.fashion_mnist import FashionMnist

TRAIN, TEST, SIDE = 2040, 2000, 16


def smaller(images: Tensor) -> np.ndarray:
    """By averages over areas."""
    small = F.interpolate(images.float(), size=(SIDE, SIDE), mode="area")
    return small.round().to(torch.uint8)[:, 0].numpy()


def save(path: Path, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]) -> None:
    np.savez_compressed(
        path,
        train_images=smaller(train[0]),
        train_labels=train[1].numpy(),
        test_images=smaller(test[0]),
        test_labels=test[1].numpy(),
    )


def main() -> None:
    data, out = FashionMnist(sys.argv[1]).load(), Path(sys.argv[2])
    train = (data.images[:TRAIN], data.labels[:TRAIN])
    save(out / "fashion.npz", train, (data.test_images[:TEST], data.test_labels[:TEST]))
    held_out, tested = slice(30_000, 30_000 + TRAIN), slice(40_000, 40_000 + TEST)
    train, test = ((data.images[part], data.labels[part]) for part in (held_out, tested))
    save(out / "fashion-held-out.npz", train, test)


if __name__ == "__main__":
    main()

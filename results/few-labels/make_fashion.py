"""A small Fashion-MNIST for this study: 2,040 training pictures at 16 × 16 pixels, and 2,000 test pictures.

`python results/few-labels/make_fashion.py FOLDER OUT`: the folder with the four .gz files of Fashion-MNIST (as in
Debian's package dataset-fashion-mnist), and where to write fashion.npz.
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


def main() -> None:
    data, out = FashionMnist(sys.argv[1]).load(), Path(sys.argv[2])
    np.savez_compressed(
        out / "fashion.npz",
        train_images=smaller(data.images[:TRAIN]),
        train_labels=data.labels[:TRAIN].numpy(),
        test_images=smaller(data.test_images[:TEST]),
        test_labels=data.test_labels[:TEST].numpy(),
    )


if __name__ == "__main__":
    main()

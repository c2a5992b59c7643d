"""A small Fashion-MNIST for this study: 2,040 training pictures at 16 × 16 pixels, and 2,000 test pictures.

`python results/few-labels/make_fashion.py FOLDER OUT`: the folder with the four .gz files of Fashion-MNIST (as in
Debian's package dataset-fashion-mnist), and where to write fashion.npz.
"""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

TRAIN, TEST, SIDE = 2040, 2000, 16


def pictures(path: Path, number: int) -> np.ndarray:
    """The first ones, made smaller by averages over their areas."""
    large = np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=16).reshape(-1, 1, 28, 28)[:number]
    small = F.interpolate(torch.tensor(large, dtype=torch.float32), size=(SIDE, SIDE), mode="area")
    return small.round().to(torch.uint8)[:, 0].numpy()


def labels(path: Path, number: int) -> np.ndarray:
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=8)[:number].astype(np.int64)


def main() -> None:
    folder, out = Path(sys.argv[1]), Path(sys.argv[2])
    np.savez_compressed(
        out / "fashion.npz",
        train_images=pictures(folder / "train-images-idx3-ubyte.gz", TRAIN),
        train_labels=labels(folder / "train-labels-idx1-ubyte.gz", TRAIN),
        test_images=pictures(folder / "t10k-images-idx3-ubyte.gz", TEST),
        test_labels=labels(folder / "t10k-labels-idx1-ubyte.gz", TEST),
    )


if __name__ == "__main__":
    main()

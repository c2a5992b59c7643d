"""Two alike classes at four uneven sites, as folders: T-shirts and shirts of Fashion-MNIST at 16 × 16 pixels.

`python results/remedies/make_sites.py FOLDER OUT`: the folder with the four .gz files of Fashion-MNIST (as in Debian's
package dataset-fashion-mnist), and where to write `sites/`. The hub has 20 labels of each class; sites of 600, 300, 200
and 100 pictures have 90, 50, 20 and 3 % shirts.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from PIL import Image

from semifl.data.datasets.fashion_mnist import FashionMnist

CLASSES = {"t-shirt": 0, "shirt": 6}
SITES = {"north": (60, 540), "east": (150, 150), "south": (160, 40), "west": (97, 3)}  # T-shirts and shirts
LABELED, TESTED, SIDE = 20, 500, 16


def write(images: np.ndarray, folder: Path, name: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for place, each in enumerate(images):
        Image.fromarray(each).resize((SIDE, SIDE), Image.Resampling.BOX).save(folder / f"{name}{place}.png")


def main() -> None:
    data, out = FashionMnist(sys.argv[1]).load(), Path(sys.argv[2]) / "sites"
    for column, (name, number) in enumerate(CLASSES.items()):
        train, test = (
            data.images[data.labels == number, 0].numpy(),
            data.test_images[data.test_labels == number, 0].numpy(),
        )
        write(test[:TESTED], out / "test" / name, "")
        write(train[:LABELED], out / "labeled" / name, "")
        start = LABELED
        for site, counts in SITES.items():
            write(train[start : start + counts[column]], out / "clients" / site, f"{column}-")
            start += counts[column]


if __name__ == "__main__":
    main()

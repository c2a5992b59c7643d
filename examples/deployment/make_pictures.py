"""Handwritten digits as picture files: a hub with a few labels, and two sites without any.

Usage: python make_pictures.py FOLDER
"""

import sys
from pathlib import Path

from PIL import Image
from sklearn.datasets import load_digits

LABELED, TESTED, AT_SITE = 5, 25, 500  # pictures per class at the hub, twice; pictures at each site
SITES = ("clinic-a", "clinic-b")


def main(root: Path) -> None:
    digits = load_digits()
    seen = dict.fromkeys(range(10), 0)
    left = []
    for number, (image, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        picture = Image.fromarray((image * 255 / 16).astype("uint8"))
        seen[label] += 1
        if seen[label] <= LABELED:
            save(picture, root / "hub" / "labeled" / str(label) / f"{number}.png")
        elif seen[label] <= LABELED + TESTED:
            save(picture, root / "hub" / "test" / str(label) / f"{number}.png")
        else:
            left.append((number, picture))
    for position, (number, picture) in enumerate(left[: AT_SITE * len(SITES)]):
        save(picture, root / SITES[position % len(SITES)] / f"{number}.png")


def save(picture: Image.Image, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    picture.save(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

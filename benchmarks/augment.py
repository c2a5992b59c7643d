"""How much faster batched views are than Pillow doing the same operations image by image, on one core.

And whether a pixel of a large picture costs more than one of a small picture.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageEnhance, ImageOps
from sklearn.datasets import load_sample_images

from semifl.data.augment import FIXMATCH, REFERENCE, Kind, strong, weak
from semifl.data.dataset import Facts

PICTURES, SIZE, PADDING = 500, 32, 4
REPETITIONS, CALLS = 15, 8
GREY = (127, 127, 127)
FACTS = Facts(("thing",), (0.5,) * 3, (0.25,) * 3, may_flip=True, channels=3, size=SIZE)

AFFINE, BILINEAR = Image.Transform.AFFINE, Image.Resampling.BILINEAR
PILLOW: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "autocontrast": lambda image, _: ImageOps.autocontrast(image),
    "bilinear_shear_x": lambda image, v: image.transform(image.size, AFFINE, (1, v, 0, 0, 1, 0), BILINEAR),
    "bilinear_shear_y": lambda image, v: image.transform(image.size, AFFINE, (1, 0, 0, v, 1, 0), BILINEAR),
    "brightness": lambda image, v: ImageEnhance.Brightness(image).enhance(v),
    "color": lambda image, v: ImageEnhance.Color(image).enhance(v),
    "contrast": lambda image, v: ImageEnhance.Contrast(image).enhance(v),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "grey_from": lambda image, _: paint(image, *(max(0, random.randrange(SIZE) - 20) for _ in "xy"), 40),
    "identity": lambda image, _: image,
    "invert": lambda image, _: ImageOps.invert(image),
    "posterize": lambda image, v: ImageOps.posterize(image, int(v)),
    "rotate": lambda image, v: image.rotate(v),
    "sharpness": lambda image, v: ImageEnhance.Sharpness(image).enhance(v),
    "shear_x": lambda image, v: image.transform(image.size, AFFINE, (1, v, 0, 0, 1, 0)),
    "shear_y": lambda image, v: image.transform(image.size, AFFINE, (1, 0, 0, v, 1, 0)),
    "solarize": lambda image, v: ImageOps.solarize(image, int(v)),
    "translate_x": lambda image, v: image.transform(image.size, AFFINE, (1, 0, v * SIZE, 0, 1, 0)),
    "translate_y": lambda image, v: image.transform(image.size, AFFINE, (1, 0, 0, 0, 1, v * SIZE)),
}


def paint(image: Image.Image, left: int, top: int, side: int) -> Image.Image:
    ImageDraw.Draw(image).rectangle((left, top, left + side - 1, top + side - 1), GREY)
    return image


def pillow_weak(pixels: np.ndarray) -> Image.Image:
    # Pillow cannot pad by reflection; like torchvision, let NumPy do that before the picture becomes Pillow's.
    padded = np.pad(pixels.transpose(1, 2, 0), ((PADDING, PADDING), (PADDING, PADDING), (0, 0)), mode="reflect")
    top, left = random.randint(0, 2 * PADDING), random.randint(0, 2 * PADDING)
    image = Image.fromarray(padded).crop((left, top, left + SIZE, top + SIZE))
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if random.random() < 0.5 else image


def pillow_fixmatch(pixels: np.ndarray) -> Image.Image:
    image = pillow_weak(pixels)
    for name, (low, high) in random.choices(list(FIXMATCH.items()), k=2):
        image = PILLOW[name](image, random.uniform(low, high))
    return paint(image, random.randrange(SIZE) - SIZE // 4, random.randrange(SIZE) - SIZE // 4, SIZE // 2)


def pillow_reference(pixels: np.ndarray) -> Image.Image:
    image = pillow_weak(pixels)
    for name, ends in random.choices(list(REFERENCE.items()), k=2):
        if random.random() < random.uniform(0.2, 0.8):
            image = PILLOW[name](image, random.choice(ends))
    return image


def one_by_one(view: Callable[[np.ndarray], Image.Image], images: np.ndarray) -> np.ndarray:
    return np.stack([np.asarray(view(pixels)) for pixels in images]).transpose(0, 3, 1, 2)


def real_pictures() -> torch.Tensor:
    """Tiles of the two photographs that come with scikit-learn."""
    tiles = [
        np.asarray(Image.fromarray(photo[y : y + 64, x : x + 64]).resize((SIZE, SIZE)))
        for photo in load_sample_images().images
        for y in range(0, 364, 28)
        for x in range(0, 560, 28)
    ]
    return torch.from_numpy(np.stack(tiles[:PICTURES])).permute(0, 3, 1, 2).contiguous()


def seconds(job: Callable[[], object], times: int = 1) -> float:
    start = time.perf_counter()
    for _ in range(times):
        job()
    return time.perf_counter() - start


def measure(case: str, ours: Callable[[], object], pillow: Callable[[], object]) -> dict[str, object]:
    """Medians of interleaved repetitions, so that a busy moment of the machine hits both sides."""
    seconds(ours), seconds(pillow)
    # Ours runs CALLS times in a row: both sides then have stretches of like length to warm the caches.
    pairs = [(seconds(ours, CALLS) / CALLS, seconds(pillow)) for _ in range(REPETITIONS)]
    our_time, pillow_time = (statistics.median(times) for times in zip(*pairs, strict=True))
    return {
        "benchmark": "augment",
        "case": case,
        "ratio": round(pillow_time / our_time, 1),
        "ours_images_per_second": round(PICTURES / our_time),
        "pil_images_per_second": round(PICTURES / pillow_time),
        "compared_with": "Pillow, image by image, one core",
    }


def cost_of_size(kind: Kind, large: int = 224) -> dict[str, object]:
    """Nanoseconds of strong views per value of a picture: as many values in large pictures as in small ones."""
    generator = torch.Generator().manual_seed(0)
    worlds = []
    for size in (SIZE, large):
        pictures = torch.randint(0, 256, (PICTURES * SIZE**2 // size**2, 3, size, size), dtype=torch.uint8)
        worlds.append((pictures, replace(FACTS, size=size)))
    pairs = [
        [seconds(lambda: strong(x, facts, kind, generator)) / x.numel() for x, facts in worlds]  # noqa: B023
        for _ in range(REPETITIONS)
    ]
    small_time, large_time = (statistics.median(times) for times in zip(*pairs, strict=True))
    return {
        "benchmark": "augment",
        "case": f"strong {kind}, {large} pixels on a side",
        "ratio": round(large_time / small_time, 2),
        "nanoseconds_per_value": round(1e9 * large_time, 2),
        "compared_with": f"{SIZE} pixels on a side",
    }


def main() -> None:
    torch.set_num_threads(1)
    random.seed(0)
    images = real_pictures()
    pixels = images.numpy()
    generator = torch.Generator().manual_seed(0)
    print(json.dumps(measure("weak", lambda: weak(images, FACTS, generator), lambda: one_by_one(pillow_weak, pixels))))
    for name, view in (("fixmatch", pillow_fixmatch), ("reference", pillow_reference)):
        kind = cast(Kind, name)
        result = measure(
            f"strong {kind}",
            lambda kind=kind: strong(images, FACTS, kind, generator),
            lambda view=view: one_by_one(view, pixels),
        )
        print(json.dumps(result))
        print(json.dumps(cost_of_size(kind)))


if __name__ == "__main__":
    main()

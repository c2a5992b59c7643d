"""Every batched operation against Pillow itself, pixel by pixel, on real pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageDraw, ImageEnhance, ImageOps
from sklearn.datasets import load_digits, load_sample_images
from torch import Tensor

from semifl.data.pil_ops import OPERATIONS, apply, cutout

AFFINE, BILINEAR = Image.Transform.AFFINE, Image.Resampling.BILINEAR

PILLOW: dict[str, Callable[[Image.Image, float], Image.Image]] = {
    "autocontrast": lambda image, _: ImageOps.autocontrast(image),
    "bilinear_shear_x": lambda image, v: image.transform(image.size, AFFINE, (1, v, 0, 0, 1, 0), BILINEAR),
    "bilinear_shear_y": lambda image, v: image.transform(image.size, AFFINE, (1, 0, 0, v, 1, 0), BILINEAR),
    "brightness": lambda image, v: ImageEnhance.Brightness(image).enhance(v),
    "color": lambda image, v: ImageEnhance.Color(image).enhance(v),
    "contrast": lambda image, v: ImageEnhance.Contrast(image).enhance(v),
    "equalize": lambda image, _: ImageOps.equalize(image),
    "grey_from": lambda image, v: rectangle(image, *divmod(int(v), image.width), image.width),
    "identity": lambda image, _: image,
    "invert": lambda image, _: ImageOps.invert(image),
    "posterize": lambda image, v: ImageOps.posterize(image, min(int(v), 8)),
    "rotate": lambda image, v: image.rotate(v),
    "sharpness": lambda image, v: ImageEnhance.Sharpness(image).enhance(v),
    "shear_x": lambda image, v: image.transform(image.size, AFFINE, (1, v, 0, 0, 1, 0)),
    "shear_y": lambda image, v: image.transform(image.size, AFFINE, (1, 0, 0, v, 1, 0)),
    "solarize": lambda image, v: ImageOps.solarize(image, v),  # type: ignore[arg-type]
    "translate_x": lambda image, v: image.transform(image.size, AFFINE, (1, 0, v * image.width, 0, 1, 0)),
    "translate_y": lambda image, v: image.transform(image.size, AFFINE, (1, 0, 0, 0, 1, v * image.width)),
}

# The magnitudes to try: beyond what the views use, both signs where there are two, ends and special values included.
RANGES: dict[str, tuple[float, float]] = {
    "brightness": (0, 2),
    "color": (0, 2),
    "contrast": (0, 2),
    "grey_from": (0, 63),
    "posterize": (1, 9),
    "rotate": (-30, 30),
    "sharpness": (0, 2),
    "solarize": (0, 256),
    "translate_x": (-1.1, 1.1),
    "translate_y": (-3.2, 3.2),
} | dict.fromkeys(["bilinear_shear_x", "bilinear_shear_y", "shear_x", "shear_y"], (-0.3, 0.3))


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """As in a client's job; small batches on many threads mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def rectangle(image: Image.Image, top: int, left: int, side: int) -> Image.Image:
    ImageDraw.Draw(image).rectangle(
        (left, top, left + side - 1, top + side - 1), 127 if image.mode == "L" else (127,) * 3
    )
    return image


def photographs(size: int) -> np.ndarray:
    """Tiles of the photographs that come with scikit-learn, uint8 [n, size, size, 3]."""
    tiles = [
        np.asarray(Image.fromarray(photo[y : y + side, x : x + side]).resize((size, size)))
        for photo in load_sample_images().images
        for side in (size, 120)
        for y, x in ((0, 0), (90, 210), (180, 400), (280, 500))
    ]
    return np.stack(tiles)


def pictures(kind: str) -> np.ndarray:
    """Real pictures [n, s, s] or [n, s, s, 3], with a constant and a two-valued one among them."""
    if kind == "digits":
        images = (load_digits().images[:16] * 255 / 16).astype(np.uint8)
    else:
        mode, size = kind.split()
        images = photographs(int(size))
        images = images if mode == "colour" else images[..., 1]
    images[3] = 90
    images[4] = np.where(images[4] > 100, 200, 50)
    return np.ascontiguousarray(images)


def to_batch(images: np.ndarray) -> Tensor:
    return torch.from_numpy(images if images.ndim == 4 else images[..., None]).permute(0, 3, 1, 2).contiguous()


def by_pillow(name: str, images: np.ndarray, magnitudes: np.ndarray) -> Tensor:
    views = [PILLOW[name](Image.fromarray(pixels), float(v)) for pixels, v in zip(images, magnitudes, strict=True)]
    return to_batch(np.stack([np.asarray(view) for view in views]))


def by_us(name: str, images: np.ndarray, magnitudes: np.ndarray) -> Tensor:
    operation = torch.full((len(images),), OPERATIONS.index(name))
    return apply(to_batch(images), operation, torch.from_numpy(magnitudes))


@pytest.mark.parametrize("kind", ["colour 32", "colour 27", "grey 32", "grey 27", "digits"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_each_operation_equals_pillow(name: str, kind: str) -> None:
    images = pictures(kind)
    low, high = RANGES.get(name, (0, 0))
    grid = np.linspace(low, high, 25 if high > low else 1)
    for magnitude in grid:
        # Each picture of the batch has its own magnitude, so a mix-up between pictures would show.
        magnitudes = np.clip(magnitude + np.linspace(0, (high - low) / 25, len(images)), low, high)
        torch.testing.assert_close(by_us(name, images, magnitudes), by_pillow(name, images, magnitudes), rtol=0, atol=0)


@pytest.mark.parametrize("name", sorted(set(OPERATIONS) - {"identity"}))
def test_the_comparison_would_notice_an_operation_that_does_nothing(name: str) -> None:
    images = pictures("colour 32")
    magnitudes = np.full(len(images), {"posterize": 4.0, "rotate": 30, "solarize": 128, "grey_from": 40}.get(name, 0.3))
    assert not torch.equal(by_pillow(name, images, magnitudes), to_batch(images))


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(sorted(RANGES)),
    share=st.floats(0, 1),
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(4, 40),
    channels=st.sampled_from([1, 3]),
)
def test_any_pixels_of_any_size_equal_pillow(name: str, share: float, seed: int, size: int, channels: int) -> None:
    shape = (3, size, size) if channels == 1 else (3, size, size, 3)
    images = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    low, high = RANGES[name] if name != "grey_from" else (0, size * size - 1)
    # Pillow adds up float positions when it translates; to stay clear of its rounding use values of few bits.
    magnitudes = np.full(3, low + round(share * 4096) / 4096 * (high - low))
    assert torch.equal(by_us(name, images, magnitudes), by_pillow(name, images, magnitudes))


@pytest.mark.parametrize("name", ["autocontrast", "equalize"])
def test_histogram_operations_on_skewed_pictures(name: str) -> None:
    """Few distinct values and one that fills half of the picture: where equalize steps by one and overflows."""
    rng = np.random.default_rng(0)
    images = rng.choice([3, 4, 5, 77, 250], p=[0.1, 0.15, 0.15, 0.1, 0.5], size=(20, 32, 32)).astype(np.uint8)
    none = np.zeros(len(images))
    assert torch.equal(by_us(name, images, none), by_pillow(name, images, none))


def test_a_mixed_batch_gives_each_picture_its_own_operation() -> None:
    images = np.concatenate([pictures("colour 32")] * 5)
    rng = np.random.default_rng(1)
    operation = rng.integers(0, len(OPERATIONS), len(images))
    magnitude = np.array([rng.uniform(*RANGES.get(OPERATIONS[number], (0, 0))) for number in operation])

    batched = apply(to_batch(images), torch.from_numpy(operation), torch.from_numpy(magnitude))

    assert len(np.unique(operation)) > 12
    for i, number in enumerate(operation):
        alone = by_pillow(OPERATIONS[number], images[i : i + 1], magnitude[i : i + 1])
        assert torch.equal(batched[i : i + 1], alone), OPERATIONS[number]


def test_apply_leaves_its_input_alone_and_takes_no_pictures_at_all() -> None:
    images = to_batch(pictures("colour 27"))
    before = images.clone()
    for name in OPERATIONS:
        apply(images, torch.full((len(images),), OPERATIONS.index(name)), torch.full((len(images),), 0.3).double())
    assert torch.equal(images, before)
    assert apply(images[:0], torch.empty(0, dtype=torch.int64), torch.empty(0).double()).shape == (0, 3, 27, 27)


@pytest.mark.parametrize("kind", ["colour 27", "digits"])
def test_cutout_equals_a_pillow_rectangle(kind: str) -> None:
    images = pictures(kind)
    rng = np.random.default_rng(2)
    size = images.shape[1]
    top, left = rng.integers(-size // 2, size + 1, (2, len(images)))
    squares = [
        np.asarray(rectangle(Image.fromarray(pixels), int(y), int(x), size // 2))
        for pixels, y, x in zip(images, top, left, strict=True)
    ]
    painted = cutout(to_batch(images), torch.from_numpy(top), torch.from_numpy(left), size // 2)
    assert torch.equal(painted, to_batch(np.stack(squares)))

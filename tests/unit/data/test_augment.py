"""Views against explicit NumPy, and the laws they are drawn from."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits, load_sample_images
from torch import Tensor

from semifl.data import augment
from semifl.data.augment import Kind, WeakDraws, apply_weak, beta_weights, draw_weak, mix, normalize, strong, weak
from semifl.data.dataset import Facts
from semifl.data.pil_ops import OPERATIONS

KINDS: tuple[Kind, ...] = ("fixmatch", "reference")


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """As in a client's job; small batches on many threads mostly wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def facts(size: int, channels: int = 3, may_flip: bool = True) -> Facts:
    return Facts(("a", "b"), (0.49, 0.48, 0.44)[:channels], (0.2, 0.19, 0.21)[:channels], may_flip, channels, size)


def photographs(size: int, n: int) -> Tensor:
    tiles = [
        np.asarray(Image.fromarray(photo[y : y + 80, x : x + 80]).resize((size, size)))
        for photo in load_sample_images().images
        for y in range(0, 340, 34)
        for x in range(0, 560, 56)
    ]
    chosen = np.stack(tiles)[np.arange(n) % len(tiles)]
    return torch.from_numpy(chosen).permute(0, 3, 1, 2).contiguous()


def digits(n: int) -> Tensor:
    return torch.from_numpy((load_digits().images[:n] * 255 / 16).astype(np.uint8))[:, None]


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def numpy_weak(images: Tensor, draws: WeakDraws, padding: int) -> np.ndarray:
    size, views = images.shape[-1], []
    for picture, top, left, flip in zip(images.numpy(), *(draw.tolist() for draw in draws), strict=True):
        padded = np.pad(picture, ((0, 0), (padding, padding), (padding, padding)), mode="reflect")
        crop = padded[:, top : top + size, left : left + size]
        views.append(crop[:, :, ::-1] if flip else crop)
    return np.stack(views)


@pytest.mark.parametrize(
    ("images", "padding"),
    [(photographs(32, 200), 4), (photographs(27, 100), 3), (digits(100), 1), (photographs(4, 50), 1)],
    ids=["32", "27", "digits 8", "4"],
)
def test_weak_is_reflect_pad_crop_flip(images: Tensor, padding: int) -> None:
    size = images.shape[-1]
    draws = draw_weak(len(images), size, True, seeded())

    view = apply_weak(images, draws)

    assert view.dtype == torch.uint8
    np.testing.assert_array_equal(view.numpy(), numpy_weak(images, draws, padding))
    assert torch.equal(view, weak(images, facts(size, images.shape[1]), seeded()))
    # Every place of the crop is reached, and no other.
    assert set(draws.top.tolist()) == set(draws.left.tolist()) == set(range(2 * padding + 1))
    assert 0.3 < draws.flip.float().mean() < 0.7


def test_weak_never_mirrors_where_that_is_wrong_and_draws_the_same_crops() -> None:
    mirrored, plain = seeded(), seeded()
    with_flip, without = draw_weak(100, 32, True, mirrored), draw_weak(100, 32, False, plain)
    assert not without.flip.any()
    assert torch.equal(with_flip.top, without.top)
    assert torch.equal(with_flip.left, without.left)
    assert torch.equal(torch.rand(3, generator=mirrored), torch.rand(3, generator=plain))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize(("size", "channels"), [(32, 3), (8, 1), (27, 3), (4, 1)])
def test_strong_keeps_shape_and_type(kind: Kind, n: int, size: int, channels: int) -> None:
    images = photographs(size, n)[:, :channels] if n else torch.empty(0, channels, size, size, dtype=torch.uint8)
    view = strong(images, facts(size, channels), kind, seeded())
    assert view.shape == images.shape
    assert view.dtype == torch.uint8
    assert weak(images, facts(size, channels), seeded()).shape == images.shape


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_bits_whatever_threads_and_blocks(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = photographs(32, 300)
    before = images.clone()
    one = strong(images, facts(32), kind, seeded(5))
    torch.set_num_threads(2)
    two = strong(images, facts(32), kind, seeded(5))
    torch.set_num_threads(1)
    monkeypatch.setattr(augment, "BLOCK_PIXELS", 32 * 32 * 7)
    blocks = strong(images, facts(32), kind, seeded(5))

    assert torch.equal(one, two)
    assert torch.equal(one, blocks)
    assert torch.equal(images, before)
    assert not torch.equal(one, strong(images, facts(32), kind, seeded(6)))


def shares(operation: Tensor) -> dict[str, float]:
    counts = operation.flatten().bincount(minlength=len(OPERATIONS)) / operation.numel()
    return {name: share for name, share in zip(OPERATIONS, counts.tolist(), strict=True) if share}


def test_fixmatch_draws_fourteen_operations_uniformly_in_their_ranges() -> None:
    operation, magnitude = augment._draw_fixmatch(50_000, seeded())
    assert shares(operation) == pytest.approx(dict.fromkeys(augment.FIXMATCH, 1 / 14), abs=0.004)
    for name, (low, high) in augment.FIXMATCH.items():
        drawn = magnitude[operation == OPERATIONS.index(name)]
        assert low <= drawn.min()
        assert drawn.max() <= high
        assert float(drawn.mean()) == pytest.approx((low + high) / 2, abs=0.02 * (high - low))
        assert float(drawn.std()) == pytest.approx((high - low) / 12**0.5, abs=0.02 * (high - low))
    # The two layers are independent: the same operation twice with probability 1/14.
    assert float((operation[:, 0] == operation[:, 1]).float().mean()) == pytest.approx(1 / 14, abs=0.005)


def test_reference_applies_fifteen_operations_half_of_the_time_at_their_extremes() -> None:
    operation, magnitude = augment._draw_reference(50_000, 32, seeded())
    expected = dict.fromkeys(augment.REFERENCE, 0.5 / 15) | {"identity": 0.5}
    assert shares(operation) == pytest.approx(expected, abs=0.006)
    for name in ("rotate", "bilinear_shear_x", "translate_y"):
        drawn = magnitude[operation == OPERATIONS.index(name)]
        low, high = augment.REFERENCE[name]
        assert set(drawn.tolist()) == {low, high}
        assert float((drawn == high).double().mean()) == pytest.approx(0.5, abs=0.04)
    # The corner is max(0, u - 20) with u uniform in [0, 32): the upper left pixel with probability (21/32)².
    corner = magnitude[operation == OPERATIONS.index("grey_from")].long()
    assert max((corner // 32).max(), (corner % 32).max()) == 11
    assert float((corner == 0).double().mean()) == pytest.approx((21 / 32) ** 2, abs=0.03)


def test_the_share_of_blank_reference_views_is_the_calculated_one() -> None:
    images = photographs(32, 4000)
    assert not _blank(images).any()
    black = 2 / 15 / 2  # a translation that is applied
    grey, part = (21 / 32) ** 2 / 15 / 2, (1 - (21 / 32) ** 2) / 15 / 2  # a square over everything, or over a part
    moves = 3 / 15 / 2  # rotation and shears bring black corners into a grey picture
    translated_at_least_once = 1 - (1 - black) ** 2
    assert translated_at_least_once == pytest.approx(0.13, abs=0.002)  # the figure in the notes
    expected = (black + grey) + black * (1 - black - grey - part) + grey * (1 - black - grey - part - moves)

    share = float(_blank(strong(images, facts(32), "reference", seeded())).double().mean())

    assert share == pytest.approx(expected, abs=4 * (expected * (1 - expected) / 4000) ** 0.5)


def _blank(images: Tensor) -> Tensor:
    return (images.amax(dim=(2, 3)) == images.amin(dim=(2, 3))).all(dim=1)


@pytest.mark.parametrize(("size", "side"), [(32, 16), (27, 13), (8, 4)])
def test_fixmatch_cuts_out_half_the_side_around_a_uniform_centre(size: int, side: int) -> None:
    """None of the operations makes grey of a black picture, so what is grey is the square."""
    images = torch.zeros(3000, 1, size, size, dtype=torch.uint8)
    grey = strong(images, facts(size, 1), "fixmatch", seeded())[:, 0] == 127
    heights, widths = grey.any(dim=2).sum(dim=1), grey.any(dim=1).sum(dim=1)
    assert heights.max() == widths.max() == side
    assert torch.equal(grey.flatten(1).sum(dim=1), heights * widths)  # a rectangle
    # The number of rows cut off by a border follows from a centre uniform over the pixels.
    rows = [min(c - size // 4 + side, size) - max(c - size // 4, 0) for c in range(size)]
    assert float(heights.double().mean()) == pytest.approx(np.mean(rows), rel=0.03)
    assert float(widths.double().mean()) == pytest.approx(np.mean(rows), rel=0.03)


@pytest.mark.parametrize("channels", [1, 3])
def test_normalize_against_numpy(channels: int) -> None:
    images, known = photographs(32, 20)[:, :channels], facts(32, channels)
    mean, std = (np.array(values).reshape(1, -1, 1, 1) for values in (known.mean, known.std))
    expected = (images.numpy() / 255 - mean) / std

    result = normalize(images, known)

    assert result.dtype == torch.float32
    assert result.is_contiguous(memory_format=torch.channels_last)
    np.testing.assert_allclose(result.numpy(), expected, rtol=0, atol=1e-6)
    assert normalize(images[:0], known).shape == (0, channels, 32, 32)


def test_mix_with_one_weight_and_with_one_for_each() -> None:
    a, b = (torch.rand(5, 3, 8, 8, generator=seeded(seed)).to(memory_format=torch.channels_last) for seed in (1, 2))
    each = torch.rand(5, generator=seeded(3))
    w = each.numpy().reshape(5, 1, 1, 1)
    np.testing.assert_allclose(mix(a, b, each).numpy(), w * a.numpy() + (1 - w) * b.numpy(), rtol=0, atol=1e-6)
    np.testing.assert_allclose(mix(a, b, torch.tensor(0.3)).numpy(), 0.3 * a.numpy() + 0.7 * b.numpy(), atol=1e-6)
    assert torch.equal(mix(a, b, torch.ones(5)), a)
    assert torch.equal(mix(a, b, torch.zeros(1)), b)
    assert mix(a, b, each).is_contiguous(memory_format=torch.channels_last)
    labels = mix(torch.eye(5), torch.zeros(5, 5), each)  # targets are mixed like pictures
    assert torch.equal(labels.diagonal(), each)


def test_beta_weights_follow_their_law() -> None:
    weights = beta_weights(0.75, 40_000, np.random.default_rng(0))
    assert weights.dtype == torch.float32
    np.testing.assert_array_equal(
        weights[:5].numpy(), np.random.default_rng(0).beta(0.75, 0.75, 40_000)[:5].astype("f4")
    )
    # Beta(a, a) has mean 1/2 and variance 1 / (4 (2a + 1)).
    assert float(weights.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(weights.var()) == pytest.approx(1 / (4 * 2.5), abs=0.005)

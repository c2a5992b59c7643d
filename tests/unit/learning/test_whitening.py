"""Whitening, again in NumPy: every patch cut out by hand, covariances by their definition."""

import numpy as np
import pytest
import torch

from semifl.learning.whitening import FLOOR, as_rows, whitening_rows


def pictures(channels: int, count: int = 30, size: int = 9, seed: int = 0) -> torch.Tensor:
    """Neighbouring pixels and channels that go together, as in photographs."""
    rng = np.random.default_rng(seed)
    rough = rng.normal(size=(count, 1, size, size)) + 0.3 * rng.normal(size=(count, channels, size, size))
    smooth = rough + np.roll(rough, 1, axis=2) + np.roll(rough, 1, axis=3)
    return torch.from_numpy((128 + 25 * smooth).clip(0, 255).astype(np.uint8))


def patches(images: torch.Tensor, std: tuple[float, ...]) -> np.ndarray:
    """Every 2×2 patch of the normalised pictures, in the order channel, row, column."""
    values = images.numpy() / 255 / np.array(std)[:, None, None]
    size = values.shape[-1]
    return np.array([
        picture[:, row : row + 2, column : column + 2].ravel()
        for picture in values
        for row in range(size - 1)
        for column in range(size - 1)
    ])  # fmt: skip


@pytest.mark.parametrize(("channels", "std"), [(1, (0.3,)), (3, (0.2, 0.25, 0.3))])
def test_whitened_patches_have_the_identity_for_their_covariance(channels: int, std: tuple[float, ...]) -> None:
    images = pictures(channels)
    given = patches(images, std)
    variances = np.linalg.eigvalsh(np.cov(given.T, bias=True))[::-1]

    found = np.cov((given @ np.array(whitening_rows(images, std)).T).T, bias=True)

    # The floor shrinks each variance v to v / (v + floor), most of all the small ones.
    np.testing.assert_allclose(found, np.diag(variances / (variances + FLOOR)), atol=1e-5)
    assert found.trace() > 0.95 * len(found)


def test_the_most_frequent_direction_comes_first_and_signs_are_fixed() -> None:
    rows = np.array(whitening_rows(pictures(3), (0.2, 0.2, 0.2)))

    spreads = 1 / np.linalg.norm(rows, axis=1)  # a unit vector over its spread
    assert (np.diff(spreads) < 0).all()
    assert all(row[np.abs(row).argmax()] > 0 for row in rows)


def test_by_hand_two_kinds_of_patch() -> None:
    # Flat pictures, half 0 and half 51: patches are (x, x, x, x), x = 0 or 0.2 / std = 1. Along (½, ½, ½, ½) the
    # value is 2x, of variance 1; in every other direction nothing varies and only the floor divides.
    images = torch.zeros(4, 1, 5, 5, dtype=torch.uint8)
    images[2:] = 51

    first, *others = np.array(whitening_rows(images, (0.2,)))

    np.testing.assert_allclose(first, np.full(4, 0.5) / np.sqrt(1 + FLOOR), rtol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(others, axis=1), 1 / np.sqrt(FLOOR), rtol=1e-6)
    np.testing.assert_allclose(np.array(others) @ first, 0, atol=1e-5)


def test_neither_threads_nor_the_order_of_the_pictures_nor_blocks_leave_a_trace() -> None:
    images = pictures(3, count=600, size=6)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        two = whitening_rows(images, (0.2, 0.2, 0.2))
        torch.set_num_threads(1)
        one = whitening_rows(images.flip(0), (0.2, 0.2, 0.2))
    finally:
        torch.set_num_threads(before)

    assert one == two


def test_rows_are_of_single_precision() -> None:
    filters = torch.tensor([[[[0.1, 1 / 3]]]])

    assert torch.equal(torch.tensor(as_rows(filters)), filters.flatten(1))

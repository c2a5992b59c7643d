"""Batches of an epoch and the stretches they are made in."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from semifl.data.batches import STRETCH_PIXELS, shuffled, stretches, with_replacement
from semifl.randomness import Seed


def test_shuffling_keeps_every_position_once() -> None:
    positions = torch.arange(100) * 3

    order = shuffled(positions, Seed(0).at("order"))

    assert sorted(order.tolist()) == positions.tolist()
    assert order.tolist() != positions.tolist()
    assert torch.equal(order, shuffled(positions, Seed(0).at("order")))
    assert not torch.equal(order, shuffled(positions, Seed(0).at("another order")))


def test_shuffling_nothing() -> None:
    assert shuffled(torch.arange(0), Seed(0).at("order")).tolist() == []


def test_drawing_with_replacement_is_uniform() -> None:
    positions = torch.tensor([5, 50, 500, 5000])

    drawn = with_replacement(positions, 40_000, Seed(0).at("mix"))

    values, counts = drawn.unique(return_counts=True)
    assert values.tolist() == positions.tolist()
    assert len(drawn) == 40_000
    # 10,000 each; the standard deviation is √(40,000 · ¼ · ¾) = 86.6.
    assert (counts - 10_000).abs().max() < 5 * 86.6


def test_drawing_may_give_more_than_there_is() -> None:
    assert with_replacement(torch.tensor([7]), 3, Seed(0).at("mix")).tolist() == [7, 7, 7]


@settings(deadline=None)
@given(count=st.integers(1, 5000), batch=st.integers(2, 300), size=st.sampled_from([8, 28, 32, 64, 512]))
def test_stretches_hold_whole_batches_in_order(count: int, batch: int, size: int) -> None:
    cut = list(stretches(count, batch, size))

    covered = [position for stretch, _ in cut for position in range(stretch.start, stretch.stop)]
    batches = [(stretch.start + inner.start, stretch.start + inner.stop) for stretch, inners in cut for inner in inners]
    lengths = [stop - start for start, stop in batches]
    assert covered == list(range(count))
    assert [position for start, stop in batches for position in range(start, stop)] == covered
    assert all(length == batch for length in lengths[:-1])
    assert 1 < lengths[-1] <= batch + 1 or count == 1
    for stretch, inners in cut:
        assert (inners[0].start, inners[-1].stop) == (0, stretch.stop - stretch.start)
        # As many pictures as the memory allows, but one batch at least; the last may have one picture more.
        assert (stretch.stop - stretch.start - 1) * size * size <= STRETCH_PIXELS or len(inners) == 1


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (2048, [(0, 2048, 128)]),  # 2,048 pictures of 32 × 32 in one stretch, 128 batches of 16
        (2049, [(0, 2049, 128)]),  # the one too many joins the last batch
        (2050, [(0, 2048, 128), (2048, 2050, 1)]),
        (5000, [(0, 2048, 128), (2048, 4096, 128), (4096, 5000, 57)]),  # 904 = 56 · 16 + 8
    ],
)
def test_stretches_by_hand(count: int, expected: list[tuple[int, int, int]]) -> None:
    cut = [(stretch.start, stretch.stop, len(inner)) for stretch, inner in stretches(count, 16, 32)]

    assert cut == expected


def test_one_picture_alone_comes_twice() -> None:
    # BatchNorm cannot normalise a single value, so the picture is seen in two views.
    assert shuffled(torch.tensor([7]), torch.Generator()).tolist() == [7, 7]
    assert shuffled(torch.tensor([], dtype=torch.int64), torch.Generator()).tolist() == []

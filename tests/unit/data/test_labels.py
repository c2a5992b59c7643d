"""Who is labeled."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from semifl.data.dataset import UNKNOWN
from semifl.data.labels import balanced_draw, hold_out
from semifl.errors import UserError
from semifl.randomness import Seed

NAMES = ("cat", "dog", "eel")


def labels_with(*counts: int) -> torch.Tensor:
    """So many of each class, in an order that is none."""
    labels = torch.cat([torch.full((count,), label) for label, count in enumerate(counts)])
    return labels[torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))]


@settings(deadline=None)
@given(share=st.integers(1, 12), seed=st.integers(0, 1000), extra=st.lists(st.integers(0, 20), min_size=3, max_size=3))
def test_the_draw_is_balanced_distinct_and_sorted(share: int, seed: int, extra: list[int]) -> None:
    labels = labels_with(*(share + more for more in extra))

    drawn = balanced_draw(labels, 3 * share, NAMES, Seed(seed))

    assert torch.bincount(labels[drawn], minlength=3).tolist() == [share] * 3
    assert drawn.tolist() == sorted(set(drawn.tolist()))


def test_the_draw_depends_on_the_seed_alone() -> None:
    labels = labels_with(100, 100, 100)

    first, again, other = (balanced_draw(labels, 30, NAMES, Seed(seed)) for seed in (0, 0, 1))

    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_draw_of_one_class_does_not_depend_on_the_others() -> None:
    labels = torch.arange(3).repeat_interleave(50)
    swapped = torch.where(labels == 0, 1, torch.where(labels == 1, 0, labels))

    one, other = (balanced_draw(each, 15, NAMES, Seed(4)) for each in (labels, swapped))

    assert torch.equal(one[one >= 100], other[other >= 100])


def test_every_picture_can_be_drawn() -> None:
    labels = labels_with(6, 6, 6)
    times = torch.zeros(18)

    for seed in range(300):
        times[balanced_draw(labels, 9, NAMES, Seed(seed))] += 1

    # Each is drawn half of the time; the standard deviation of 300 coin tosses is 8.7.
    assert 150 - 5 * 8.7 < times.min() <= times.max() < 150 + 5 * 8.7


def test_pictures_of_unknown_class_are_never_drawn() -> None:
    labels = torch.cat([torch.full((50,), UNKNOWN), labels_with(4, 4, 4)])

    assert balanced_draw(labels, 12, NAMES, Seed(0)).tolist() == list(range(50, 62))


@pytest.mark.parametrize("count", [0, -3, 2, 4, 100])
def test_a_number_that_cannot_be_balanced_is_refused(count: int) -> None:
    with pytest.raises(UserError) as caught:
        balanced_draw(labels_with(90, 90, 90), count, NAMES, Seed(0))

    expected = f"data.labeled = {count} cannot be balanced over 3 classes: choose a positive multiple of 3"
    assert str(caught.value) == expected


def test_a_class_that_is_too_small_is_named() -> None:
    with pytest.raises(UserError) as caught:
        balanced_draw(labels_with(9, 4, 9), 15, NAMES, Seed(0))

    assert str(caught.value) == "data.labeled = 15 asks for 5 pictures of every class, but class 'dog' has only 4"


@settings(deadline=None)
@given(
    counts=st.lists(st.integers(4, 40), min_size=3, max_size=3),
    share=st.floats(0.2, 0.75),
    seed=st.integers(0, 100),
)
def test_holding_out_divides_every_class(counts: list[int], share: float, seed: int) -> None:
    labels = labels_with(*counts, 30)
    positions = torch.nonzero(labels < 3).flatten()  # class 3 belongs to others

    kept, held = hold_out(positions, labels, share, NAMES, Seed(seed))

    assert sorted([*kept.tolist(), *held.tolist()]) == positions.tolist()
    assert kept.tolist() == sorted(kept.tolist())
    assert held.tolist() == sorted(held.tolist())
    for label, count in enumerate(counts):
        assert abs(int((labels[held] == label).sum()) - share * count) <= 0.5
        assert 0 < int((labels[held] == label).sum()) < count


def test_holding_out_nothing_keeps_everything() -> None:
    labels = labels_with(5, 1, 7)

    kept, held = hold_out(torch.arange(13), labels, 0.0, NAMES, Seed(0))

    assert kept.tolist() == list(range(13))
    assert held.tolist() == []
    assert held.dtype == torch.int64


def test_holding_out_depends_on_the_seed_alone() -> None:
    labels = labels_with(20, 20, 20)

    first, again, other = (hold_out(torch.arange(60), labels, 0.5, NAMES, Seed(seed))[1] for seed in (0, 0, 1))

    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(("share", "few"), [(0.1, 4), (0.9, 4), (0.5, 1), (1.0, 4)])
def test_a_class_without_anything_left_is_named(share: float, few: int) -> None:
    with pytest.raises(UserError) as caught:
        hold_out(torch.arange(20 + few), labels_with(10, few, 10), share, NAMES, Seed(0))

    name, count = ("cat", 10) if share == 1.0 else ("dog", few)
    assert str(caught.value) == (
        f"data.validation = {share} leaves class {name!r}, which has {count} labels, "
        "without a picture to train or to validate on"
    )

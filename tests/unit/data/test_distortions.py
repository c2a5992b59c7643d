"""The sheet of distorted pictures: each operation from mild to strong, on a real picture."""

import torch

from semifl.data.augment import FIXMATCH
from semifl.data.distortions import RISING, SIDE, STEPS, real_picture, rows


def test_every_operation_rises_from_hardly_anything_to_its_strongest() -> None:
    picture = real_picture()
    assert (picture.shape, picture.dtype) == ((3, SIDE, SIDE), torch.uint8)
    found = rows(picture)
    assert [row.operation for row in found] == [name for name in FIXMATCH if name != "identity"]
    for row in found:
        assert len(row.pictures) == len(row.magnitudes) == (STEPS if row.operation in RISING else 1)
        if row.operation in RISING:
            away = [float((each.permute(2, 0, 1).double() - picture.double()).abs().mean()) for each in row.pictures]
            assert away == sorted(away), row.operation
            assert away[0] < away[-1] / 4, row.operation


def test_the_magnitudes_are_those_of_the_strong_view() -> None:
    for name, (mild, strong) in RISING.items():
        low, high = FIXMATCH[name]
        assert low <= min(mild, strong) <= max(mild, strong) <= high, name

"""Which pooled pictures BatchNorm statistics are measured on, by hand."""

import pytest
import torch

from semifl.federation import sites
from semifl.federation.sites import thinned


@pytest.mark.parametrize(
    ("pictures", "expected"), [(0, []), (1, [0]), (4, [0, 1, 2, 3]), (5, [0, 2, 4]), (9, [0, 3, 6])]
)
def test_many_pictures_are_measured_by_a_part_that_lies_all_over_them(
    monkeypatch: pytest.MonkeyPatch, pictures: int, expected: list[int]
) -> None:
    """At most four: of five every second, of nine every third."""
    monkeypatch.setattr(sites, "MEASURED", 4)
    assert thinned(torch.arange(pictures)).tolist() == expected

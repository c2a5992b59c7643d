"""Ranges and choices as fields declare them: what is refused, and in which words."""

import math
import re
from dataclasses import dataclass
from typing import Annotated

import pytest

from semifl.fields import Checked, Choice, Count, NotNegative, Positive, Range, Share, ShareBelowOne, choices, ranges


@dataclass(frozen=True)
class Left:
    turn: Count = 1


@dataclass(frozen=True)
class Right:
    pass


@dataclass(frozen=True)
class Things(Checked):
    share: Share = 0.5
    below: ShareBelowOne = 0.0
    count: Count = 1
    rate: Positive = 1.0
    weight: NotNegative = 0.0
    perhaps: Count | None = None
    inner: Annotated[float, Range(2, 3, open_least=True)] = 2.5
    way: Annotated[Left | Right, Choice({"left": Left, "right": Right})] = Left()
    other: Annotated[Left | Right, Choice({"left": Left, "right": Right})] | None = None


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"share": 1.1}, "share must lie between 0 and 1, not 1.1"),
        ({"share": -0.1}, "share must lie between 0 and 1, not -0.1"),
        ({"share": math.nan}, "share must lie between 0 and 1, not nan"),
        ({"below": 1.0}, "below must be at least 0 and below 1, not 1.0"),
        ({"count": 0}, "count must be at least 1, not 0"),
        ({"rate": 0.0}, "rate must be above 0, not 0.0"),
        ({"rate": math.inf}, "rate must be above 0, not inf"),
        ({"weight": -1.0}, "weight must not be negative, but is -1.0"),
        ({"weight": math.inf}, "weight must be a finite number, not inf"),
        ({"perhaps": 0}, "perhaps must be at least 1, not 0"),
        ({"way": "left"}, "way must be one of left, right as an object, not 'left'"),
        ({"inner": 2.0}, "inner must be above 2 and at most 3, not 2.0"),
    ],
)
def test_a_value_outside_its_range_is_one_sentence(bad: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        Things(**bad)


def test_the_ends_that_belong_to_a_range_are_taken() -> None:
    assert Things(share=0.0, below=0.999, count=1, weight=0.0, perhaps=None, inner=3.0)
    assert Things(share=1.0)


def test_ranges_and_choices_are_found_behind_an_alternative() -> None:
    assert set(ranges(Things)) == {"share", "below", "count", "rate", "weight", "perhaps", "inner"}
    assert set(choices(Things)) == {"way", "other"}


def test_a_choice_knows_its_names_both_ways() -> None:
    choice = choices(Things)["way"]
    assert choice.names() == ["left", "right"]
    assert (choice.find("right", "way.name"), choice.name_of(Right())) == (Right, "right")

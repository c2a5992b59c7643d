"""Ranges and choices as fields declare them: what is refused, and in which words."""

import math
import re
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import pytest
import torch

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


@dataclass(frozen=True)
class Typed(Checked):
    word: Literal["floor", "ceil"] = "floor"
    number: Literal[9, 18] = 18
    several: Literal["fp32", "bf16"] | Literal["auto"] = "fp32"
    count: Count = 1
    rate: Positive = 1.0
    switch: bool = False
    name: str = ""
    perhaps: Count | None = None
    widths: tuple[int, int] = (1, 2)
    shares: tuple[float, ...] = (1.0,)
    unknown: dict[str, int] | None = None


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"word": "ceiling"}, "word must be one of floor, ceil, not 'ceiling'; did you mean 'ceil'?"),
        ({"word": 3}, "word must be one of floor, ceil, not 3"),
        ({"word": None}, "word must be one of floor, ceil, not None"),
        ({"number": 10}, "number must be one of 9, 18, not 10"),
        ({"number": 9.0}, "number must be one of 9, 18, not 9.0"),
        ({"several": "fp16"}, "several must be one of fp32, bf16, auto, not 'fp16'; did you mean 'bf16'?"),
        ({"count": "3"}, "count must be a whole number, not '3'"),
        ({"count": 2.0}, "count must be a whole number, not 2.0"),
        ({"count": True}, "count must be a whole number, not True"),
        ({"count": None}, "count must be a whole number, not None"),
        ({"count": 2**63}, "count is too large a number"),
        ({"count": 10**5000}, "count is too large a number"),
        ({"rate": "0.1"}, "rate must be a number, not '0.1'"),
        ({"rate": False}, "rate must be a number, not False"),
        ({"rate": 10**400}, "rate is too large a number"),
        ({"switch": 1}, "switch must be True or False, not 1"),
        ({"name": 3}, "name must be a string, not 3"),
        ({"perhaps": "3"}, "perhaps must be a whole number or None, not '3'"),
        ({"widths": (1, 2, 3)}, "widths must be (a whole number, a whole number), not (1, 2, 3)"),
        ({"widths": 3}, "widths must be (a whole number, a whole number), not 3"),
        ({"shares": ("a",)}, "shares must be (a number, …), not ('a',)"),
    ],
)
def test_a_value_of_another_type_is_one_sentence(bad: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        Typed(**bad)


def test_values_that_fit_are_taken_as_they_are() -> None:
    marks = {"a": 1}
    thing = Typed("ceil", 9, "auto", 3, 1, True, "x", None, (4, 4), (0.5, 1), marks)
    assert (thing.rate, type(thing.rate), thing.unknown) == (1, int, marks)
    assert thing.unknown is marks


def test_numbers_of_numpy_and_torch_become_pythons_own() -> None:
    given = {"count": np.int64(3), "rate": torch.tensor(0.5), "switch": np.True_}
    thing = Typed(**given, widths=np.array([4, 5]), shares=[np.float32(1)])
    assert thing == Typed(count=3, rate=0.5, switch=True, widths=(4, 5), shares=(1.0,))
    kinds = [type(each) for each in (thing.count, thing.rate, thing.switch, *thing.widths, *thing.shares)]
    assert kinds == [int, float, bool, int, int, float]
    with pytest.raises(ValueError, match="count must be a whole number"):
        Typed(count=np.float64(2))


def test_a_class_that_inherits_is_checked_in_its_own_fields_too() -> None:
    @dataclass(frozen=True)
    class Own(Typed):
        way: Literal["up", "down"] = "up"

    with pytest.raises(ValueError, match=r"^way must be one of up, down, not 'left'$"):
        Own(way="left")
    with pytest.raises(ValueError, match=r"^count must be a whole number, not '3'$"):
        Own(count="3")

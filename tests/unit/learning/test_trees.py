"""Nests go through JSON and a list of tensors and come back as they were."""

import json
import math
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from semifl.learning.trees import AnotherForm, flatten, rebuild


class State(NamedTuple):
    weights: Any
    count: Any


class Other(NamedTuple):
    only: Any


NAMED: dict[str, type] = {"State": State, "Other": Other}

TENSORS = st.lists(st.integers(-5, 5), max_size=3).map(lambda values: torch.tensor(values, dtype=torch.float32))
# Words of the skeleton itself are the names most likely to confuse it.
WORDS = st.sampled_from(["tensor", "dict", "named", "parts", "tuple", "value", "State", "", "é"]) | st.text(max_size=3)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS
NESTS = st.recursive(
    PLAIN | TENSORS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(WORDS | st.integers(0, 9), inner, max_size=3),
        st.tuples(inner, inner).map(lambda pair: State(*pair)),
        inner.map(Other),
    ),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(type(x) is type(y) and same(a[x], b[y]) for x, y in zip(a, b, strict=True))
    if isinstance(a, tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


def through_json(tree: Any) -> Any:
    tensors: list[Tensor] = []
    skeleton = json.loads(json.dumps(flatten(tree, tensors)))
    return rebuild(skeleton, tensors, NAMED)


@settings(deadline=None)
@given(NESTS)
def test_a_nest_comes_back_as_it_was(tree: Any) -> None:
    assert same(through_json(tree), tree)


def test_a_state_by_hand() -> None:
    weights, bias = torch.ones(2), torch.zeros(3)
    tensors: list[Tensor] = []

    skeleton = flatten(State({"w": weights, "b": bias}, 7), tensors)

    assert skeleton == {
        "named": "State",
        "fields": ["weights", "count"],
        "parts": [{"dict": [["w", {"tensor": 0}], ["b", {"tensor": 1}]]}, {"value": 7}],
    }
    assert tensors[0] is weights
    assert tensors[1] is bias


def test_numbers_that_are_no_numbers_come_back_too() -> None:
    nan, infinite, tiny = through_json((math.nan, -math.inf, 5e-324))

    assert math.isnan(nan)
    assert (infinite, tiny) == (-math.inf, 5e-324)


def test_a_list_comes_back_as_a_tuple() -> None:
    assert through_json([1, [2, "x"]]) == (1, (2, "x"))


def test_tensors_are_numbered_on_from_those_already_there() -> None:
    tensors = [torch.zeros(1)]

    assert flatten((torch.ones(1), torch.ones(2)), tensors) == {"tuple": [{"tensor": 1}, {"tensor": 2}]}
    assert [len(tensor) for tensor in tensors] == [1, 1, 2]


@pytest.mark.parametrize("thing", [{1, 2}, b"bytes", object(), 1j, nn.Linear(1, 1), torch.float32, flatten])
def test_foreign_things_are_refused(thing: Any) -> None:
    with pytest.raises(TypeError, match=f"not {type(thing).__name__}"):
        flatten({"state": (thing,)}, [])


@pytest.mark.parametrize("skeleton", [None, 3, "tensor", [], {}, {"pickle": "x"}, {"named": "State"}, {"parts": []}])
def test_foreign_skeletons_are_refused(skeleton: Any) -> None:
    with pytest.raises(ValueError, match="not the structure of a State"):
        rebuild({"tuple": [skeleton]}, [], NAMED)


def test_classes_that_were_not_offered_are_refused() -> None:
    skeleton = flatten(Other(1), [])

    with pytest.raises(KeyError, match="Other"):
        rebuild(skeleton, [], {"State": State})


def test_a_class_with_other_fields_is_refused() -> None:
    skeleton = flatten(State(1, 2), [])

    with pytest.raises(AnotherForm):
        rebuild(skeleton, [], {"State": Other})


def test_a_tensor_that_is_missing_is_refused() -> None:
    with pytest.raises(IndexError):
        rebuild({"tensor": 1}, [torch.zeros(1)], NAMED)


class Grown(NamedTuple):
    weights: Any
    fresh: Any = 5
    count: Any = 0


class Shrunk(NamedTuple):
    weights: Any


class Strict(NamedTuple):
    weights: Any
    count: Any
    needed: Any


def test_a_state_with_a_new_field_that_has_a_default_takes_what_was_written_before_it() -> None:
    skeleton = flatten(State("W", 7), [])
    assert rebuild(skeleton, [], {"State": Grown}) == Grown("W", 5, 7)  # by name, wherever the new field stands
    del skeleton["fields"]  # as written before fields had their names beside them
    assert rebuild(skeleton, [], {"State": State}) == State("W", 7)


@pytest.mark.parametrize(("kind", "reason"), [(Shrunk, "has 'count', which is not known"), (Strict, "has no 'needed'")])
def test_a_state_of_another_form_is_told_and_not_called_damaged(kind: type, reason: str) -> None:
    with pytest.raises(AnotherForm, match=reason):
        rebuild(flatten(State("W", 7), []), [], {"State": kind})

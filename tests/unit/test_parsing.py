"""JSON and TOML are followed to a certain depth and no further."""

import time

import pytest

from semifl.parsing import DEEPEST, TooDeep, from_json, from_toml, shallow

TOML = {
    "dotted keys": lambda depth: "a." * depth + "b = 1",
    "quoted keys": lambda depth: '"a b" . ' * depth + "b = 1",
    "a section": lambda depth: "[" + "a." * depth + "b]\nc = 1",
    "inline tables": lambda depth: "a = " + "{b = " * depth + "1" + "}" * depth,
    "keys in an inline table": lambda depth: "a = {" + "b." * depth + "c = 1}",
    "arrays": lambda depth: "a = " + "[" * depth + "]" * depth,
}


def nest(depth: int) -> object:
    """A list in a list in a list…: `depth` lists."""
    inner: list = []
    for _ in range(depth - 1):
        inner = [inner]
    return inner


def test_depth_is_counted_in_levels() -> None:
    assert shallow(nest(DEEPEST)) == nest(DEEPEST)
    with pytest.raises(TooDeep):
        shallow(nest(DEEPEST + 2))
    with pytest.raises(TooDeep):
        shallow({"a": {"b": nest(DEEPEST)}})


def test_a_nest_that_holds_itself_ends() -> None:
    inner: list = []
    inner.append(inner)
    with pytest.raises(TooDeep):
        shallow(inner)


@pytest.mark.parametrize("depth", [700, 5000, 200_000])
@pytest.mark.parametrize("kind", TOML)
def test_deep_toml_is_refused_at_once(kind: str, depth: int) -> None:
    began = time.monotonic()
    with pytest.raises(TooDeep, match="nested more than 100 levels deep"):
        from_toml(TOML[kind](depth))
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("kind", TOML)
def test_shallow_toml_is_read(kind: str) -> None:
    assert from_toml(TOML[kind](20))


def test_dots_in_values_and_remarks_are_no_keys() -> None:
    numbers, words = ", ".join(["0.5"] * 500), ", ".join(['"x.y.z"'] * 500)
    text = f"# {'.' * 500}\na = [{numbers}]\nb = [{words}]\n"
    assert from_toml(text) == {"a": [0.5] * 500, "b": ["x.y.z"] * 500}


def test_a_long_word_costs_no_time() -> None:
    began = time.monotonic()
    assert from_toml(f'"{"x" * 1_000_000}" = 1')
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("depth", [101, 700, 5000, 200_000])
def test_deep_json_is_refused(depth: int) -> None:
    with pytest.raises(TooDeep):
        from_json("[" * (depth + 1) + "]" * (depth + 1))
    with pytest.raises(ValueError, match=r"nested|Expecting"):
        from_json('{"a": ' * depth)


def test_sound_json_is_read() -> None:
    assert from_json('{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}


def test_a_byte_order_mark_is_no_part_of_toml() -> None:
    assert from_toml("\ufeffrounds = 3\n") == {"rounds": 3}
    with pytest.raises(ValueError, match="Invalid"):
        from_toml("rounds = 3\n\ufeffseed = 1\n")  # anywhere else it is a mistake

"""What is written is read again as it was: the standard library reads, semifl writes."""

import tomllib

import pytest

from semifl import toml


@pytest.mark.parametrize(
    "table",
    [
        {"a b": 1, "": 2, "é": 3, 'quo"te': 4},
        {"rows": {"250 labels": {"b.c": {"lr": 0.1}}}},
        {"weights": {}, "method": {"of": {}}, "z": True},
        {"name": "a\x7fb", "lines": "a\nb\t\\", "list": ["\x7f", "\x00"]},
        {"large": 1e22, "small": 1e-7, "below": float("-inf"), "nest": [[1.0, 2], []]},
        {"scalar": 1, "table": {"inner": {"deep": "x"}, "after": 2}},
    ],
)
def test_what_is_written_is_read_again_as_it_was(table):
    assert tomllib.loads(toml.dumps(table)) == table


def test_plain_keys_stay_plain():
    assert toml.dumps({"seed": 0, "data": {"name": "digits", "partition": {"name": "iid"}}}) == (
        'seed = 0\n\n[data]\nname = "digits"\n\n[data.partition]\nname = "iid"\n'
    )

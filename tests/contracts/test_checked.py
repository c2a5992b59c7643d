"""Whoever builds a method, an objective or a model in Python is told of a word or a number that it does not know."""

from dataclasses import fields
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from semifl import registry
from semifl.configuration.config import METHODS, MODELS
from semifl.objectives import OBJECTIVES

FIELDS = [
    (cls, each.name, hint)
    for package in (METHODS, MODELS, OBJECTIVES)
    for cls in (registry.find(package, name, "name") for name in registry.names(package))
    for each, hint in ((each, get_type_hints(cls)[each.name]) for each in fields(cls))
]


@pytest.mark.parametrize(("cls", "name", "hint"), FIELDS, ids=[f"{cls.__name__}.{name}" for cls, name, _ in FIELDS])
def test_a_value_of_another_kind_is_refused(cls: type, name: str, hint: Any) -> None:
    wrong = "no such word" if hint is not str else 3
    words = get_args(hint) if get_origin(hint) is Literal else ()
    with pytest.raises(ValueError, match=f"^{name} must be .*{words[0] if words else ''}.*, not {wrong!r}"):
        cls(**{name: wrong})

"""A plural folder is its own registry."""

from pathlib import Path

import pytest

import semifl.data.datasets
import semifl.methods
import semifl.models
from semifl.errors import UserError
from semifl.registry import did_you_mean, find, load, names


@pytest.fixture
def shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A folder of our own, with a name that no other test has imported."""
    package = f"shapes_{abs(hash(request.node.name))}"
    folder = tmp_path / package
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "round_table.py").write_text("class Leg: pass\n\ndef roundtable(): pass\n\nclass RoundTable: legs = 4\n")
    (folder / "chair.py").write_text("from collections import OrderedDict\n\nclass Chair: legs = 3\n")
    (folder / "empty.py").write_text("empty = 3\n")
    (folder / "_hidden.py").write_text("class Hidden: pass\n")
    (folder / "notes.txt").write_text("not a file of Python")
    monkeypatch.syspath_prepend(tmp_path)
    return package


@pytest.mark.parametrize("package", [semifl.models, semifl.methods, semifl.data.datasets])
def test_names_are_the_files(package: object) -> None:
    folder = Path(package.__file__).parent  # type: ignore[attr-defined]
    files = sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_"))

    assert names(package.__name__) == files  # type: ignore[attr-defined]
    assert files


def test_names_leave_out_what_starts_with_an_underscore_or_is_no_python(shapes: str) -> None:
    assert names(shapes) == ["chair", "empty", "round_table"]


def test_a_file_dropped_in_is_known(shapes: str, tmp_path: Path) -> None:
    (tmp_path / shapes / "stool.py").write_text("class Stool: legs = 1\n")

    assert "stool" in names(shapes)
    assert find(shapes, "stool", "shape.name").legs == 1


def test_the_class_is_named_as_its_file(shapes: str) -> None:
    table = find(shapes, "round_table", "shape.name")

    assert isinstance(table, type)  # not the function of the same letters
    assert table.__name__ == "RoundTable"
    assert load(shapes, "round_table").RoundTable is table


@pytest.mark.parametrize("package", ["semifl.models", "semifl.methods", "semifl.data.datasets"])
def test_every_file_of_ours_has_a_class_named_like_it(package: str) -> None:
    found = {name: find(package, name, "name") for name in names(package)}

    assert {name: cls.__name__.lower() for name, cls in found.items()} == {
        name: name.replace("_", "") for name in found
    }
    assert {cls.__module__ for cls in found.values()} == {f"{package}.{name}" for name in found}


def test_a_file_without_its_class_is_the_programmers_error(shapes: str) -> None:
    with pytest.raises(ImportError, match=rf"{shapes}\.empty has no class named like its file"):
        find(shapes, "empty", "shape.name")


def test_an_unknown_name_is_answered_with_the_known_ones_and_the_nearest(shapes: str) -> None:
    with pytest.raises(UserError) as caught:
        find(shapes, "chairs", "shape.name")

    assert str(caught.value) == "shape.name = 'chairs' is not one of chair, empty, round_table; did you mean 'chair'?"


def test_an_unknown_name_far_from_all_gets_no_guess(shapes: str) -> None:
    with pytest.raises(UserError) as caught:
        find(shapes, "zzz", "shape.name")

    assert str(caught.value) == "shape.name = 'zzz' is not one of chair, empty, round_table"


@pytest.mark.parametrize("name", ["_hidden", "__init__", "", ".", "notes"])
def test_what_is_no_name_cannot_be_found(shapes: str, name: str) -> None:
    with pytest.raises(UserError, match="is not one of chair, empty, round_table"):
        find(shapes, name, "shape.name")


@pytest.mark.parametrize(
    ("word", "guess"), [("wide_resnt", "; did you mean 'wide_resnet'?"), ("cn", "; did you mean 'cnn'?"), ("xyz", "")]
)
def test_did_you_mean(word: str, guess: str) -> None:
    assert did_you_mean(word, ["cnn", "wide_resnet"]) == guess


def test_did_you_mean_takes_any_iterable_and_nothing() -> None:
    assert did_you_mean("cnn", (name for name in ["cnm"])) == "; did you mean 'cnm'?"
    assert did_you_mean("cnn", []) == ""


def test_a_users_own_comes_by_module_and_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_registry_test.py").write_text("def build(): return 42\n")
    monkeypatch.syspath_prepend(tmp_path)

    assert find("semifl.models", "mine_registry_test:build", "model.name")() == 42


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no_such_module_anywhere:Thing", "cannot be imported: No module named 'no_such_module_anywhere'"),
        ("collections:Thing", "cannot be found: module 'collections' has no 'Thing'"),
        ("collections:", "is not of the form package.module:name"),
        (":Thing", "is not of the form package.module:name"),
        (".models:Thing", "is not of the form package.module:name"),
    ],
)
def test_a_users_own_that_is_not_there_is_one_sentence(name: str, why: str) -> None:
    with pytest.raises(UserError) as caught:
        find("semifl.models", name, "model.name")

    assert str(caught.value).startswith(f"model.name = {name!r} {why}")
    assert "\n" not in str(caught.value)

"""`semifl init`: a project that is valid as it is, and leads a newcomer to a model."""

import shlex
import tomllib
from pathlib import Path

import pytest

from semifl.cli import invoke
from semifl.configuration.config import decode, read

Output = pytest.CaptureFixture[str]


@pytest.mark.parametrize("layout", ["hub", "try"])
def test_a_project_is_valid_and_says_what_to_do(layout: str, tmp_path: Path, capsys: Output) -> None:
    home = tmp_path / "my birds"
    assert invoke(["init", str(home), "--layout", layout]) == 0
    out = capsys.readouterr().out
    config = decode(read(home / "config.toml"))
    assert config.data.name == "folder"
    assert config.data.thing.root == str(home / "pictures")  # type: ignore[attr-defined]
    assert config.split.clients == (4 if layout == "try" else None)
    commands = [shlex.split(line) for line in out.splitlines() if line.startswith("  semifl ")]
    assert [words[1] for words in commands] == ["check", "run", "predict"]
    assert commands[0][2] == str(home / "config.toml")
    parts = {"hub": ["clients", "labeled", "test"], "try": ["test", "train"]}[layout]
    assert sorted(path.name for path in (home / "pictures").iterdir() if path.is_dir()) == parts
    assert all(part in (home / "pictures/README.txt").read_text(encoding="utf-8") for part in parts)
    assert "semifl run" in (home / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("layout", ["hub", "try"])
def test_every_key_has_a_comment(layout: str, tmp_path: Path) -> None:
    invoke(["init", str(tmp_path / "p"), "--layout", layout])
    text = (tmp_path / "p/config.toml").read_text(encoding="utf-8")
    for line in text.splitlines():
        if "=" in line and not line.startswith("#") and not line.startswith(('name = "folder"',)):
            assert "#" in line, line
    assert tomllib.loads(text)["rounds"] == 20


@pytest.mark.parametrize("layout", ["hub", "try"])
def test_an_empty_project_says_what_to_put_where(layout: str, tmp_path: Path, capsys: Output) -> None:
    invoke(["init", str(tmp_path / "p"), "--layout", layout])
    capsys.readouterr()
    for verb in ("check", "run"):
        assert invoke([verb, str(tmp_path / "p/config.toml")]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "holds no pictures yet: put " in line
        assert "labeled ones to measure with into test/<class>/" in line


def test_what_is_there_stays(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    assert invoke(["init", str(tmp_path)]) == 2
    assert "is not empty (it holds notes.txt)" in capsys.readouterr().err
    assert invoke(["init", str(tmp_path / "notes.txt")]) == 2
    assert "is a file" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_an_empty_directory_will_do(tmp_path: Path) -> None:
    assert invoke(["init", str(tmp_path)]) == 0
    assert (tmp_path / "config.toml").is_file()


def test_a_place_that_cannot_be_written_is_one_sentence(capsys: Output) -> None:
    assert invoke(["init", "/proc/semifl-cannot-write-here"]) == 2
    assert "cannot write /proc/semifl-cannot-write-here" in capsys.readouterr().err


def test_a_word_people_try_first(capsys: Output) -> None:
    assert invoke(["new", "x"]) == 2
    assert "use 'semifl init'" in capsys.readouterr().err


def test_a_project_on_a_backbone_is_read_at_its_size_and_says_how_to_fetch_it(tmp_path, capsys):
    assert invoke(["init", str(tmp_path / "fruit"), "--pretrained"]) == 0
    assert "semifl backbone get efficientnet_lite0" in capsys.readouterr().out
    table = decode(read(tmp_path / "fruit/config.toml")).table()
    assert (table["model"]["name"], table["model"]["train"], table["model"]["views"]) == ("pretrained", "head", 4)
    assert table["data"]["size"] == table["model"]["size"] == 160
    assert table["method"]["optimizer"] == "adamw"

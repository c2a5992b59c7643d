"""What a newcomer types: wrong sizes, folders for files, keys in the wrong place. One sentence each, exit code 2."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from semifl import toml
from semifl.cli import invoke
from semifl.configuration.build import build_world
from semifl.configuration.config import decode, override
from semifl.errors import UserError
from toys import toy_table

Output = pytest.CaptureFixture[str]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What `semifl init` makes, with a few pictures."""
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "cache"))
    home, rng = tmp_path / "pneu", np.random.default_rng(0)
    assert invoke(["init", str(home)]) == 0
    for folder in sorted((home / "pictures").glob("*/*-*")):
        for number in range(3):
            pixels = rng.integers(0, 256, (9, 9), dtype=np.uint8)
            Image.fromarray(pixels).save(folder / f"{number}.png")
    return home


def test_projects_runs_and_configurations_are_told_apart(project: Path, capsys: Output) -> None:
    config = project / "config.toml"
    for words, said in (
        (["check", str(project)], f"name the configuration in it, {config}"),
        (["run", str(project)], f"name the configuration in it, {config}"),
        (["run", str(config), "--out", str(project)], f"choose another --out, such as {project / 'run'}"),
        (["resume", str(project)], f"is a project and not a run: start one with 'semifl run {config}'"),
        (["report", str(project)], f"is a project and not a run: start one with 'semifl run {config}'"),
        (["check", str(project / "pictures")], "is a folder without a config.toml"),
    ):
        assert invoke(words) == 2, words
        error = capsys.readouterr().err
        assert said in error, words
        assert len(error.splitlines()) == 1
    assert not (project / "report.html").exists()
    assert not (project / "environment.json").exists()


def test_a_run_can_be_checked_but_not_be_run_again(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "toy.toml").write_text(toml.dumps({**toy_table(), "rounds": 1, "labels_only": False}))
    assert invoke(["run", str(tmp_path / "toy.toml"), "--out", str(tmp_path / "run"), "--workers", "1"]) == 0
    capsys.readouterr()
    assert invoke(["check", str(tmp_path / "run"), "--workers", "1"]) == 0
    assert "for 1 round with 1 worker\n" in capsys.readouterr().out
    assert invoke(["run", str(tmp_path / "run")]) == 2
    assert f"semifl resume {tmp_path / 'run'}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("data.size=1", "data.size must lie between 2 and 1024, not 1"),
        ("data.size=100000", "data.size must lie between 2 and 1024, not 100000"),
        ("method.activity_rate=0", "method.activity_rate = 0 asks no client at all"),
        ("method.lr=1000", "the server's first steps diverge"),
        ("warmup_steps=9", "unknown key warmup_steps; did you mean 'method.warmup_steps'?"),
        ("patience=3", "unknown key patience; did you mean 'stop.patience'?"),
        ("width=3", "unknown key width; did you mean 'model.width'?"),
        ("thread=3", "unknown key thread; did you mean 'threads'?"),
    ],
)
def test_senseless_values_are_refused(project: Path, capsys: Output, setting: str, said: str) -> None:
    assert invoke(["check", str(project / "config.toml"), "--workers", "1", "--set", setting]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert "Traceback" not in error


def test_a_key_of_the_method_that_is_named_is_found(project: Path, capsys: Output) -> None:
    settings = ["--set", "method.name=semifl", "--set", "threshold=0.9"]
    assert invoke(["check", str(project / "config.toml"), "--workers", "1", *settings]) == 2
    assert "unknown key threshold; did you mean 'method.threshold'?" in capsys.readouterr().err


def test_pictures_that_no_memory_can_hold_are_refused(project: Path, capsys: Output, monkeypatch) -> None:
    monkeypatch.setattr("semifl.machine.memory", lambda: 10**6)
    assert invoke(["check", str(project / "config.toml"), "--set", "data.size=1000"]) == 2
    # Eighteen pictures of three million bytes.
    assert "data.size = 1000 makes 0.1 GB of 18 pictures" in capsys.readouterr().err


def test_another_model_leaves_the_keys_of_the_old_one_behind(project: Path, capsys: Output) -> None:
    table = {"model": {"name": "wide_resnet", "depth": 10, "width": 1, "weights": "w.safetensors"}}
    assert override(table, ["model.width=4", "model.name=cnn"])["model"] == {
        "name": "cnn",
        "width": 4,
        "weights": "w.safetensors",
    }
    assert override(table, ["model.name=wide_resnet"]) == table
    assert invoke(["check", str(project / "config.toml"), "--workers", "1", "--set", "model.name=cnn"]) == 0
    assert "model      cnn" in capsys.readouterr().out


def test_one_class_cannot_be_told_from_others(project: Path, capsys: Output) -> None:
    for part in ("labeled", "test"):
        for path in sorted((project / "pictures" / part / "second-class").iterdir()):
            path.unlink()
        (project / "pictures" / part / "second-class").rmdir()
    assert invoke(["check", str(project / "config.toml")]) == 2
    assert "there is one class only, 'first-class'" in capsys.readouterr().err


def test_a_configuration_says_what_to_learn_from(tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "empty.toml").write_text("rounds = 3\n")
    for verb in ("check", "run", "show"):
        assert invoke([verb, str(tmp_path / "empty.toml")]) == 2
        assert "does not say what to learn from: set data.name" in capsys.readouterr().err


def test_no_client_at_all_is_refused_in_python_too() -> None:
    with pytest.raises(UserError, match="asks no client"):
        build_world(decode(toy_table(activity_rate=0.0)))

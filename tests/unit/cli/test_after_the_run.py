"""What a person meets after a run: pictures that have changed since, lists, thresholds, exports, paths with spaces."""

import json
import os
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from semifl import toml
from semifl.cli import invoke
from semifl.cli.display import interrupted
from semifl.trained import export
from toys import toy_table

Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path_factory.mktemp("cache")))


def save(path: Path, rng: np.random.Generator, shape: tuple[int, ...] = (8, 8)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).save(path)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with grey pictures of two kinds and a run of two rounds on them, in a place with a space in its name."""
    home, rng = tmp_path_factory.mktemp("a project"), np.random.default_rng(0)
    parts = {"labeled/healthy": 6, "labeled/ill": 6, "clients/a": 12, "test/healthy": 8, "test/ill": 4}
    for part, count in parts.items():
        for number in range(count):
            save(home / "pictures" / part / f"{number}.png", rng)
    table = {**toy_table(), "rounds": 2, "labels_only": False}
    table["data"] = {"name": "folder", "root": "pictures", "size": 8}
    (home / "config.toml").write_text(toml.dumps(table))
    assert invoke(["run", str(home / "config.toml"), "--out", str(home / "run"), "--workers", "1"]) == 0
    return home


@pytest.fixture
def home(trained: Path, tmp_path: Path) -> Path:
    copy = shutil.copytree(trained, tmp_path / "here")
    config = copy / "run/config.toml"
    config.write_text(config.read_text().replace(str(trained), str(copy)))
    return copy


def refused(words: list[str], capsys: Output) -> str:
    capsys.readouterr()
    assert invoke(words) == 2, words
    (error,) = capsys.readouterr().err.splitlines()
    return error


def test_a_class_that_was_renamed_is_neither_graded_nor_trained_as_another(home: Path, capsys: Output) -> None:
    for part in ("labeled", "test"):
        (home / "pictures" / part / "healthy").rename(home / "pictures" / part / "well")  # the last by the alphabet
    said = refused(["evaluate", str(home / "run")], capsys)
    assert "their classes are now ill, well, and the model knows healthy, ill" in said
    said = refused(["resume", str(home / "run"), "--rounds", "3", "--workers", "1"], capsys)
    assert "the list of classes was 'healthy, ill' and is now 'ill, well'" in said


def test_a_colour_picture_among_grey_ones_is_told(home: Path, capsys: Output) -> None:
    save(home / "pictures/test/ill/9.png", np.random.default_rng(1), (8, 8, 3))
    assert "their channels are now 3, and the model knows 1" in refused(["evaluate", str(home / "run")], capsys)
    said = refused(["resume", str(home / "run"), "--rounds", "3", "--workers", "1"], capsys)
    assert "the number of channels was '1' and is now '3'" in said


def test_a_list_of_everything_is_graded_by_its_test_pictures(home: Path, capsys: Output) -> None:
    files = [path.relative_to(home / "pictures") for path in sorted((home / "pictures").glob("*/*/*.png"))]
    lines = [f"{path},{path.parts[1] if path.parts[0] != 'clients' else ''}" for path in files]
    (home / "pictures/all.csv").write_text("\n".join(["file,label", *lines]))
    assert invoke(["evaluate", str(home / "run")]) == 0
    by_run = capsys.readouterr().out
    assert invoke(["evaluate", str(home / "run"), str(home / "pictures/all.csv")]) == 0
    said = capsys.readouterr()
    assert said.out == by_run
    assert "12 of 36 lines: those for test" in said.err
    own = [line for line in lines if line.startswith("labeled")]
    (home / "pictures/own.csv").write_text("\n".join(["file,label", *own]))  # nothing is for test: all of it counts
    assert invoke(["evaluate", str(home / "run"), str(home / "pictures/own.csv")]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("12 pictures,")
    assert "those for test" not in said.err


def test_classes_and_matrix_are_counted_at_the_threshold(home: Path, capsys: Output) -> None:
    words = ["predict", str(home / "run"), str(home / "pictures/test"), "--json", "--probabilities"]
    capsys.readouterr()
    assert invoke(words) == 0
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    shares = sorted(each["probability_ill"] for each in told)
    threshold = (shares[5] + shares[6]) / 2  # half of the twelve are above
    counts = np.zeros((2, 2), int)
    for each in told:
        counts[int("ill" in Path(each["path"]).parts), int(each["probability_ill"] >= threshold)] += 1
    assert invoke(["evaluate", str(home / "run"), "--json", "--threshold", str(threshold)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["confusion"] == counts.tolist()
    assert found["classes"]["ill"]["recall"] == pytest.approx(found["sensitivity"]) == 100 * counts[1, 1] / 4
    assert found["classes"]["ill"]["specificity"] == pytest.approx(found["specificity"])
    assert invoke(["evaluate", str(home / "run"), "--threshold", str(threshold)]) == 0
    assert "12 pictures, by the likelier class: accuracy" in capsys.readouterr().out


def test_an_export_does_not_stand_beside_another_model(home: Path, capsys: Output) -> None:
    assert invoke(["export", str(home / "run"), "--to", "torchscript"]) == 0
    before = (home / "run/model.pt").read_bytes()
    assert invoke(["resume", str(home / "run"), "--rounds", "3", "--workers", "1"]) == 0
    assert "model-of-2-rounds.pt is the export of the model after 2 rounds" in capsys.readouterr().err
    assert not (home / "run/model.pt").exists()
    assert (home / "run/model-of-2-rounds.pt").read_bytes() == before


def test_an_export_that_cannot_be_written_is_one_sentence(
    home: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a share that is only to be read; TorchScript's own writer has words for programmers."""

    def refuse(path: Path, write: Callable[[Path], None]) -> None:
        write(home)  # a folder cannot be written as a file, whoever one is

    monkeypatch.setattr(export, "replace_file", refuse)
    out = home / "model.out"
    said = refused(["export", str(home / "run"), "--to", "torchscript", "--out", str(out)], capsys)
    assert said == f"semifl: cannot write {out}: Is a directory"


def test_predicting_nothing_is_no_success(home: Path, capsys: Output) -> None:
    (home / "empty").mkdir()
    assert f"{home / 'empty'} holds no pictures" in refused(["predict", str(home / "run"), str(home / "empty")], capsys)


def test_help_says_what_arguments_are(capsys: Output) -> None:
    for verb, words in {"evaluate": "CSV", "predict": "folders of them", "export": "model.safetensors"}.items():
        assert invoke([verb, "--help"]) == 0
        assert words in re.sub(r"\s+", " ", capsys.readouterr().out)


def test_how_to_go_on_can_be_pasted(trained: Path, capsys: Output) -> None:
    with pytest.raises(BaseException), interrupted(trained / "run"):  # noqa: B017, PT011
        raise KeyboardInterrupt
    command = capsys.readouterr().err.partition("kept: ")[2].strip()
    assert shlex.split(command) == ["semifl", "resume", os.fspath(trained / "run")]

"""Names that are not UTF-8, as old disks and archives have them: files are shown with \\xe4, folders are refused."""

import csv
import io
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from semifl.cli import invoke
from semifl.data.datasets.folder import Folder
from semifl.errors import UserError
from semifl.words import shown

Output = pytest.CaptureFixture[str]
CONFIG = """
rounds = 1
threads = 1
labels_only = false
[data]
name = "folder"
root = "pictures"
size = 8
unreadable = "skip"
[model]
name = "cnn"
width = 2
[method]
name = "semifl"
activity_rate = 1.0
"""


def odd(name: bytes) -> str:
    """As Python holds a name that was written in Latin-1."""
    return os.fsdecode(name)


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for place in ("labeled/a", "labeled/b", "clients/n", "test/a", "test/b"):
        (tmp_path / "pictures" / place).mkdir(parents=True)
        for number in range(3):
            pixels = rng.integers(0, 256, (8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / place / f"{number}.png")
    return tmp_path / "pictures"


def test_what_is_shown_can_be_written_anywhere() -> None:
    assert shown(Path(odd(b"\xc4rzte/ok.png"))) == "\\xc4rzte/ok.png"  # Ä in Latin-1
    assert shown("Ärzte/ok.png") == "Ärzte/ok.png"


@pytest.mark.parametrize("place", ["labeled", "clients"])
def test_folders_of_classes_and_sites_are_refused(pictures: Path, place: str) -> None:
    (pictures / place / odd(b"\xc4pfel")).mkdir()
    with pytest.raises(UserError) as error:
        Folder(str(pictures), 8).load()
    assert str(error.value) == f"{pictures}/{place}/\\xc4pfel has a name that is not UTF-8: rename the folder."


def test_a_root_is_refused_before_a_run_would_write_it_down(pictures: Path) -> None:
    root = pictures.rename(pictures.with_name(odd(b"\xc4pfel")))
    with pytest.raises(UserError, match=r"\\xc4pfel has a name that is not UTF-8"):
        Folder(str(root), 8).load()


def test_files_of_any_name_are_learned_from_and_predicted(pictures: Path, capsys: Output) -> None:
    at = pictures / "clients/n"
    (at / "0.png").rename(at / odd(b"\xe4.png"))
    shutil.copy(at / odd(b"\xe4.png"), pictures / "test/a" / odd(b"\xe4.png"))  # found twice, and told of
    (at / odd(b"\xf6.png")).write_bytes(b"broken")
    (at / odd(b"\xf6.\xfc")).write_bytes(b"no picture we know")
    config, run = pictures.parent / "config.toml", pictures.parent / "run"
    config.write_text(CONFIG)
    assert invoke(["check", str(config), "--workers", "1"]) == 0
    out = capsys.readouterr().out
    assert "the first: clients/n/\\xf6.png" in out
    assert "1 .\\xfc" in out
    assert invoke(["run", str(config), "--out", str(run), "--workers", "1"]) == 0
    capsys.readouterr()
    (event,) = [each for each in events(run) if each["event"] == "duplicates"]
    assert "test/a/\\xe4.png" in event["what"]
    assert "test/a/\\xe4.png" in (run / "report.html").read_text(encoding="utf-8")
    expected = [shown(path) for path in sorted(at.glob("*.png"), key=os.fsencode)]
    for option, paths in (("--csv", of_csv), ("--json", of_json), ("--probabilities", of_lines)):
        assert invoke(["predict", str(run), str(at), option]) == 0
        assert paths(capsys.readouterr().out) == expected


def events(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]


def of_csv(out: str) -> list[str]:
    return [row["path"] for row in csv.DictReader(io.StringIO(out))]


def of_json(out: str) -> list[str]:
    return [json.loads(line)["path"] for line in out.splitlines()]


def of_lines(out: str) -> list[str]:
    return [line.partition("\t")[0] for line in out.splitlines()]

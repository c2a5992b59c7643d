"""`semifl check` on a folder nobody has seen: odd kinds, odd names, broken and empty things; then on to predictions."""

import csv
import io
import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from semifl.cli import invoke

Output = pytest.CaptureFixture[str]
COLOURS = {"Äpfel": (200, 40, 40), "it's pears": (60, 200, 60)}
SITES = ("Köln Süd", 'clinic "3"')


def save(path: Path, kind: str, colour: tuple[int, int, int], seed: int) -> None:
    """A picture of its own size, stored as `kind` says."""
    rng = np.random.default_rng(seed)
    width, height = rng.integers(12, 60, 2)
    pixels = (np.array(colour) + rng.integers(-30, 30, (height, width, 3))).clip(0, 255).astype(np.uint8)
    picture, suffix = Image.fromarray(pixels), kind.partition(" ")[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    options = {}
    match kind:
        case "png alpha":
            picture.putalpha(200)
        case "jpg grey" | "png grey":
            picture = picture.convert("L")
        case "jpg cmyk":
            picture = picture.convert("CMYK")
        case "png deep":
            picture = Image.fromarray(np.asarray(picture.convert("L")).astype(np.uint16) * 257)
        case "gif palette":
            picture = picture.convert("P")
        case "JPG turned":
            exif = Image.Exif()
            exif[0x0112] = 6
            options = {"exif": exif}
    picture.save(path.with_name(f"{path.name} {seed} ü's „{kind}“.{suffix}"), **options)


KINDS = ("png", "png alpha", "jpg grey", "jpg cmyk", "png deep", "gif palette", "JPG turned", "webp")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new project with such pictures; class folders of test/ are spelled as macOS does."""
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "cache"))
    home = tmp_path / "my fruit"
    assert invoke(["init", str(home)]) == 0
    root = home / "pictures"
    for folder in sorted(root.glob("*/*-*")):
        folder.rmdir()
    for seed, kind in enumerate(KINDS):
        for name, colour in COLOURS.items():
            save(root / "labeled" / name / "a", kind, colour, seed)
            save(root / "test" / unicodedata.normalize("NFD", name) / "b", kind, colour, 10 + seed)
            for place, site in enumerate(SITES):
                save(root / "clients" / site / "2024" / name / "c", kind, colour, 20 + 10 * place + seed)
    for folder in (root, root / "labeled", root / "labeled" / "Äpfel"):
        (folder / ".DS_Store").write_bytes(b"\x00")
        (folder / "Thumbs.db").write_bytes(b"\x00")
    (root / "clients" / SITES[0] / "IMG_1.HEIC").write_bytes(b"\x00")
    text = (home / "config.toml").read_text(encoding="utf-8")
    text = text.replace("rounds = 20", "rounds = 1").replace("size = 32", "size = 16")
    text = text.replace('name = "wide_resnet"', 'name = "cnn"').replace("depth = 10 ", "# ").replace("width = 1 ", "# ")
    (home / "config.toml").write_text(text.replace("epochs = 5", "epochs = 1"), encoding="utf-8")
    return home


def check(project: Path, *settings: str) -> int:
    options = [word for setting in settings for word in ("--set", setting)]
    return invoke(["check", str(project / "config.toml"), "--workers", "1", *options])


def test_what_was_found_is_told_before_a_round_is_tried(project: Path, capsys: Output) -> None:
    capsys.readouterr()
    assert check(project) == 0
    captured = capsys.readouterr()
    assert "labeled    16 pictures: it's pears 8, Äpfel 8" in captured.out
    assert 'clients    32 pictures: Köln Süd 16, clinic "3" 16' in captured.out
    assert "test       16 pictures: it's pears 8, Äpfel 8" in captured.out
    assert re.search(r"sizes      smallest \d+ × \d+ · median \d+ × \d+ · largest \d+ × \d+ pixels", captured.out)
    for kind in ("8 JPEG CMYK", "8 JPEG grey", "8 PNG 16-bit grey", "8 PNG colour with transparency", "8 GIF palette"):
        assert kind in captured.out
    assert "not read   files that are no pictures we know: 2 .db, 1 .heic" in captured.out
    assert "positive   Äpfel, the second of two classes; the key positive may say it's pears" in captured.out
    assert "the server's first steps work, loss" in captured.out
    assert "parameters" in captured.out
    for line in ("time", "memory", "disk", "traffic"):
        assert f"\n  {line} " in captured.out
    assert captured.err == ""


def test_a_positive_class_that_was_named_is_not_told_again(project: Path, capsys: Output) -> None:
    assert check(project, "positive=it's pears") == 0
    assert "\npositive " not in capsys.readouterr().out


def test_unreadable_files_are_all_named_at_once(project: Path, capsys: Output) -> None:
    site = project / "pictures/clients" / SITES[0]
    for number in range(6):
        (site / f"broken {number}.jpg").write_bytes(b"\xff\xd8\xff nothing")
    assert check(project) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.count("cannot be read as a picture") == 5
    assert 'and 1 more: replace them, or set data.unreadable = "skip"' in line
    assert check(project, "data.unreadable=skip") == 0
    assert "skipped    6 unreadable files, the first: clients/Köln Süd/broken 0.jpg, " in capsys.readouterr().out


def test_an_empty_folder_is_named(project: Path, capsys: Output) -> None:
    (project / "pictures/labeled/plums").mkdir()
    assert check(project) == 2
    assert "labeled/plums holds no readable picture: add some, or remove" in capsys.readouterr().err
    (project / "pictures/labeled/plums").rmdir()
    (project / "pictures/clients/nowhere").mkdir()
    assert check(project) == 2
    assert "clients/nowhere holds no readable picture: add some, or remove" in capsys.readouterr().err


def test_a_misspelled_class_is_recognised(project: Path, capsys: Output) -> None:
    (project / "pictures/labeled/it's pears").rename(project / "pictures/labeled/its pears")
    assert check(project) == 2
    assert "test/its pears is missing" in (error := capsys.readouterr().err)
    assert 'did you mean "it\'s pears"?' in error


def test_test_pictures_that_are_learned_from_are_a_warning(project: Path, capsys: Output) -> None:
    learned = next((project / "pictures/labeled/it's pears").iterdir())
    (project / "pictures/test/it's pears/again.png").write_bytes(learned.read_bytes())
    assert check(project) == 0
    error = capsys.readouterr().err
    assert "1 test picture is also among the pictures to learn from" in error
    assert "again.png, is " in error


def test_from_init_to_predictions(project: Path, capsys: Output) -> None:
    run = project / "run"
    assert invoke(["run", str(project / "config.toml"), "--out", str(run), "--workers", "1"]) == 0
    capsys.readouterr()
    assert invoke(["predict", str(run), str(project / "pictures/clients"), "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == 32
    assert {row["class"] for row in rows} <= set(COLOURS)
    assert invoke(["evaluate", str(run)]) == 0
    assert "16 pictures, accuracy" in capsys.readouterr().out


def test_data_that_are_no_folder_are_counted_by_class(capsys: Output) -> None:
    assert invoke(["check", "digits", "--workers", "1"]) == 0
    out = capsys.readouterr().out
    assert "labeled    30 pictures: 0 3, 1 3, 2 3, 3 3, 4 3, 5 3, 6 3, 7 3, 8 3, 9 3" in out
    assert re.search(r"to test    \d+ pictures: 0 \d+, 1 \d+", out)


def test_a_model_that_does_not_fit_is_told(project: Path, capsys: Output) -> None:
    assert check(project, "model.name=views_for_tests:seven_outputs") == 2
    assert "the model gives [2, 7] for two pictures, but 2 classes need [2, 2]" in capsys.readouterr().err

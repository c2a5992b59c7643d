"""Leaks and contradictions, found by what is in the pictures."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from semifl import toml
from semifl.api.data import FederatedData
from semifl.cli import invoke
from semifl.data.datasets.folder import Folder
from semifl.data.duplicates import duplicates
from semifl.data.pictures import pictures_below
from toys import toy_table

PARTS = ("labeled/a", "labeled/b", "clients/north", "clients/south", "test/a", "test/b")


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path_factory.mktemp("cache")))


def picture(seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (8, 8, 3), dtype=np.uint8))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two pictures in every folder, all of them different."""
    for number, part in enumerate(PARTS):
        (tmp_path / "pictures" / part).mkdir(parents=True)
        for place in range(2):
            picture(10 * number + place).save(tmp_path / "pictures" / part / f"{place}.png")
    return tmp_path / "pictures"


def found(root: Path) -> list[str]:
    return duplicates(Folder(str(root), size=8).load())


def test_nothing_is_said_of_pictures_that_differ(root: Path) -> None:
    assert found(root) == []


def test_test_pictures_that_are_learned_from_or_lie_at_clients(root: Path) -> None:
    picture(0).save(root / "test/a/copy.bmp")  # labeled/a/0.png, in another format
    picture(20).save(root / "test/b/copy.png")  # clients/north/0.png
    picture(31).save(root / "test/b/again.png")  # clients/south/1.png
    learned, at_clients = found(root)
    assert learned.startswith("1 test picture is also among the pictures to learn from")
    assert learned.endswith("the first, test/a/copy.bmp, is labeled/a/0.png")
    assert at_clients.startswith("2 test pictures are also at clients")
    assert at_clients.endswith("the first, test/b/again.png, is clients/south/1.png")


def test_a_picture_under_two_labels(root: Path) -> None:
    picture(0).save(root / "labeled/b/copy.png")
    (said,) = found(root)
    assert said == (
        "1 picture stands under two labels, of which one is wrong; the first, labeled/a/0.png, is a, "
        "and labeled/b/copy.png is b"
    )


def test_a_picture_at_two_sites(root: Path) -> None:
    picture(20).save(root / "clients/south/copy.png")
    picture(21).save(root / "clients/south/copy2.png")
    (said,) = found(root)
    assert said.startswith("2 pictures are at more than one site")
    assert said.endswith("the first, clients/north/0.png, is clients/south/copy.png")


def test_twice_at_one_site_is_that_sites_own_business(root: Path) -> None:
    picture(20).save(root / "clients/north/copy.png")
    assert found(root) == []


def test_arrays_are_named_by_their_places() -> None:
    rng = np.random.default_rng(0)
    labeled, clients, test = (rng.integers(0, 256, (4, 8, 8, 3), dtype=np.uint8) for _ in range(3))
    test[2] = clients[1]
    data = FederatedData(labeled=(labeled, [0, 1, 0, 1]), clients=[clients[:1], clients[1:]], test=(test, [0, 1, 0, 1]))
    (said,) = duplicates(data.load())
    assert said.endswith("the first, test[2], is clients[1][0]")


def test_check_and_run_say_it(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture(20).save(root / "test/b/copy.png")
    data = {"name": "folder", "root": str(root), "size": 8}
    config = root.parent / "config.toml"
    config.write_text(toml.dumps({**toy_table(), "rounds": 1, "labels_only": False, "data": data}))
    assert invoke(["check", str(config), "--workers", "1"]) == 0
    warning = "1 test picture is also at clients"
    assert warning in capsys.readouterr().err
    assert invoke(["run", str(config), "--out", str(root.parent / "run"), "--workers", "1"]) == 0
    assert warning in capsys.readouterr().err
    (event, *_) = [json.loads(line) for line in (root.parent / "run/events.jsonl").read_text().splitlines()]
    assert event["event"] == "duplicates"
    assert warning in event["what"]


def test_a_linked_folder_is_followed_once(root: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    picture(99).save(elsewhere / "9.png")
    (root / "clients/north/linked").symlink_to(elsewhere)
    (root / "clients/north/round").symlink_to(root / "clients/north")  # leads back
    names = [str(path.relative_to(root)) for path in pictures_below(root / "clients/north")]
    assert names == ["clients/north/0.png", "clients/north/1.png", "clients/north/linked/9.png"]

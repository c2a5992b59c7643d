"""The examples of the pages are run as they stand there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from semifl.cli import invoke

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(encoding="utf-8"), re.DOTALL)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def test_the_python_page_runs(tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text("\n".join(blocks("python.md", "python")), encoding="utf-8")
    done = subprocess.run([sys.executable, "page.py"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {
        "first",
        "own-views",
        "watched",
        "baseline",
        "another",
    }
    assert re.search(r"^Result\(.*; accuracy [\d.]+ % \[", done.stdout, re.MULTILINE)


def test_own_pictures_in_ten_minutes(tmp_path: Path) -> None:
    init, *others = [line for block in blocks("own-pictures.md", "sh") for line in block.splitlines()]
    assert invoke(shlex.split(init)[1:]) == 0
    root = tmp_path / "fruit/pictures"
    for folder in sorted(root.glob("*/*-*")):
        folder.rmdir()
    rng = np.random.default_rng(0)
    for part, groups in {"labeled": ("apples", "pears"), "clients": ("north",), "test": ("apples", "pears")}.items():
        for number, group in enumerate(groups):
            (root / part / group).mkdir(parents=True)
            for name in range(3):
                pixels = rng.integers(0, 100, (20, 30, 3)) + np.array([100 * number, 50, 0])
                Image.fromarray(pixels.astype(np.uint8)).save(root / part / group / f"{name}.jpg")
    config = tmp_path / "fruit/config.toml"
    config.write_text(config.read_text(encoding="utf-8").replace("rounds = 20", "rounds = 1"), encoding="utf-8")
    verbs = []
    for line in others:
        arguments = shlex.split(line)[1:]
        verbs.append(arguments[0])
        assert invoke(arguments) == 0, line
    assert verbs == ["check", "run", "evaluate", "predict"]
    assert (tmp_path / "fruit/run/report.html").is_file()

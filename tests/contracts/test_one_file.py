"""Adding a method is one file: the tutorial's, dropped into the folder, is listed, runs and obeys the contract."""

import re
from pathlib import Path

import pytest

import semifl.methods
from semifl import registry
from semifl.cli import invoke
from semifl.configuration.config import METHODS, decode
from semifl.running.contracts import CONTRACTS
from toys import method_table

PAGE = Path(__file__).parent.parent.parent / "docs/tutorial-method.md"


@pytest.fixture
def gullible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "scratch"
    folder.mkdir()
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (folder / "gullible.py").write_text(code, encoding="utf-8")
    monkeypatch.setattr(semifl.methods, "__path__", [*semifl.methods.__path__, str(folder)])
    return "gullible"


def test_it_is_listed_and_runs_by_its_name(gullible: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gullible in registry.names(METHODS)
    assert invoke(["list", "methods"]) == 0
    assert re.search(r"^gullible +Everyone trains one epoch", capsys.readouterr().out, re.MULTILINE)
    out = str(tmp_path / "run")
    settings = ["--set", "method.name=gullible", "--set", "rounds=1", "--set", "labels_only=false"]
    unset = ["--set", "data.clients=40"]
    path = tmp_path / "config.toml"
    path.write_text('[data]\nname = "digits"\n[model]\nname = "cnn"\nwidth = 4\n', encoding="utf-8")
    assert invoke(["run", str(path), *settings, *unset, "--out", out, "--workers", "1"]) == 0
    assert (tmp_path / "run/result.json").exists()


def test_it_keeps_the_contracts(gullible: str) -> None:
    for contract in CONTRACTS:
        contract(decode(method_table(gullible)))


def test_a_mistyped_method_is_one_sentence(gullible: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["show", "digits", "--set", "method.name=gulible"]) == 2
    assert "did you mean 'gullible'" in capsys.readouterr().err

"""`semifl theory` as a person types it."""

import subprocess
import sys
from pathlib import Path

import pytest

from semifl.cli import invoke

Output = pytest.CaptureFixture[str]


def test_rates_prints_predicted_beside_fitted_and_goes_on_where_it_was(tmp_path: Path, capsys: Output) -> None:
    command = ["theory", "rates", "--quick", "--setting", "rough", "--repetitions", "3", "--workers", "1"]
    assert invoke([*command, "--out", str(tmp_path)]) == 0
    first = capsys.readouterr().out
    assert "0.286" in first  # 1/3.5
    assert "0.333" in first  # 1/3
    assert {path.name for path in tmp_path.iterdir()} == {"cells.jsonl", "rates.png", "rates.svg", "index.html"}
    finished = (tmp_path / "cells.jsonl").read_text()
    assert invoke([*command, "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out == first
    assert (tmp_path / "cells.jsonl").read_text() == finished


def test_critical_and_demo(tmp_path: Path, capsys: Output) -> None:
    command = ["theory", "critical", "--quick", "--setting", "scarce", "--repetitions", "2", "--workers", "1"]
    assert invoke([*command, "--out", str(tmp_path / "critical")]) == 0
    assert "0.714" in capsys.readouterr().out  # 5/7
    assert invoke(["theory", "demo", "--out", str(tmp_path / "demo")]) == 0
    assert "with augmented points" in capsys.readouterr().out
    for name in ("critical", "demo"):
        assert "<svg" in (tmp_path / name / "index.html").read_text()


def test_mistakes_are_one_sentence(tmp_path: Path, capsys: Output) -> None:
    assert invoke(["theory", "rates", "--setting", "ruogh"]) == 2
    assert capsys.readouterr().err == "semifl: there is no setting 'ruogh'; did you mean 'rough'?\n"
    assert invoke(["theory", "rates", "--setting", "alpha=0.1,s=6,v=0"]) == 2
    assert "(A7), first part" in capsys.readouterr().err
    (tmp_path / "file").write_text("")
    assert invoke(["theory", "demo", "--out", str(tmp_path / "file")]) == 2
    assert capsys.readouterr().err.startswith("semifl: cannot write")


def test_an_interruption_says_how_to_go_on(tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("semifl.theory.cells.excess_risk", interrupted)
    assert invoke(["theory", "rates", "--quick", "--workers", "1", "--out", str(tmp_path)]) == 130
    assert "what is finished is kept" in capsys.readouterr().err


def test_help_needs_neither_torch_nor_scikit_learn() -> None:
    code = "import sys; import semifl.cli.theory; sys.exit(bool({'torch', 'sklearn', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

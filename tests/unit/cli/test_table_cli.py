"""`semifl table` as a person types it."""

import json
from pathlib import Path

import pytest

from semifl.cli import invoke

Output = pytest.CaptureFixture[str]
TABLE = """
title = "Two thresholds"
[rows.strict]
rounds = 1
labels_only = false
method.threshold = 0.95
data.clients = 40
[rows.open]
rounds = 1
labels_only = false
method.threshold = 0.0
method.client_epochs = 1
data.clients = 40
"""


def test_the_papers_tables_print_without_a_run(capsys: Output, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke(["table", "paper"]) == 0
    out = capsys.readouterr().out
    assert "| SemiFL, IID " in out
    assert "– [88.2 (0.3)]" in out
    assert "Π-Model" in out
    assert list(tmp_path.iterdir()) == []


def test_a_table_of_ones_own_is_run_printed_and_compared(capsys: Output, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(TABLE)
    assert invoke(["table", "mine.toml", "--seeds", "0,1", "--jobs", "2", "--against", "strict"]) == 0
    captured = capsys.readouterr()
    assert "4 of 4 runs to do" in captured.err
    assert "n = 2" in captured.out
    assert "Difference from 'strict'" in captured.out
    results = sorted(Path("runs/tables/mine-paper").glob("*/result.json"))
    assert [json.loads(path.read_text())["seed"] for path in results] == [0, 1, 0, 1]
    assert invoke(["table", "mine.toml", "--seeds", "0,1"]) == 0
    assert "0 of 4 runs to do" in capsys.readouterr().err


def test_a_failed_cell_is_said_and_the_exit_code_is_1(capsys: Output, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(TABLE + "data.labeled = 5000\n")
    assert invoke(["table", "mine.toml", "--seeds", "0", "--jobs", "1"]) == 1
    captured = capsys.readouterr()
    assert "1 runs failed" in captured.err
    assert "| strict | " in captured.out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["table", "missing.toml"], "missing.toml"),
        (["table", "paper", "--seeds", "a,b"], "--seeds"),
        (["table", "paper", "--scale", "huge"], "huge"),
        (["tables", "paper"], "table"),
    ],
)
def test_mistakes_are_one_sentence(
    arguments: list[str], said: str, capsys: Output, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke(arguments) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1

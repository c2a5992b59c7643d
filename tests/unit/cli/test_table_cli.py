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
    assert "In the last column the difference from 'strict'" in captured.out
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


GRID = """
[rows.one]
[rows.two]
method.threshold = 0.5
[columns.iid]
[columns.few]
data.labeled = 20
"""


def made_runs(names: list[str], accuracy: dict[str, float] | None = None) -> list[str]:
    """Finish every run of a table without running it; returns the directories."""
    from semifl.studies.tables import own_table, run_directory

    table = own_table(Path("grid.toml"), "paper")
    made = []
    for number, cell in enumerate(table.cells):
        for seed in (0, 1):
            directory = run_directory(Path("runs/tables/grid-paper"), cell, seed)
            if cell.row in names:
                directory.mkdir(parents=True)
                result = {"accuracy": 50.0 + 10 * number + seed, "best_auc": 80.0}
                (directory / "result.json").write_text(json.dumps(result))
                made.append(directory.name)
    return made


@pytest.fixture
def grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("grid.toml").write_text(GRID)


def test_parts_are_together_all_runs_and_have_none_in_common(grid: None) -> None:
    from semifl.studies.tables import Part, own_table, wanted_runs

    tables, folder = [own_table(Path("grid.toml"), "paper")], Path("runs")
    every = wanted_runs(tables, folder, [0, 1, 2])
    parts = [list(wanted_runs(tables, folder, [0, 1, 2], Part(number, 5))) for number in range(1, 6)]
    assert len(every) == 12
    assert sorted(path for part in parts for path in part) == sorted(every)
    assert sorted(map(len, parts)) == [2, 2, 2, 3, 3]


def test_a_part_is_of_all_runs_not_of_those_still_missing(grid: None, capsys: Output) -> None:
    """Or jobs of an array that begin one after the other would divide different lists."""
    made_runs(["one", "two"])
    assert invoke(["table", "grid.toml", "--seeds", "0,1", "--part", "1/3"]) == 0
    assert "0 of 3 runs to do" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("only", "rows", "columns"),
    [
        (["one"], ["one"], ["iid", "few"]),
        (["t*", "iid"], ["two"], ["iid"]),
        (["one", "two", "few"], ["one", "two"], ["few"]),
        (["two-few-*"], ["two"], ["few"]),
        (["two-few-*", "one"], ["one", "two"], ["iid", "few"]),
    ],
)
def test_only_names_rows_columns_and_cells(grid: None, capsys, only: list[str], rows: list, columns: list) -> None:
    made_runs(["one", "two"])
    assert invoke(["table", "grid.toml", "--format", "json", *(f"--only={each}" for each in only)]) == 0
    (table,) = json.loads(capsys.readouterr().out)
    assert list(table["rows"]) == rows
    assert list(table["rows"][rows[0]]) == columns


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "tow"], "--only 'tow' is no row, column or cell; did you mean 'two'?"),
        (["--only", "x*"], "--only 'x*' is no row, column or cell, such as 'one'"),
        (["--part", "3/2", "--seeds", "0"], "--part '3/2' is not of the form K/N"),
        (["--part", "1/2"], "needs --seeds"),
        (["--curves", "a.pdf"], "must end in .svg or .png"),
        (["--curves", "no/a.svg"], "there is no folder no"),
        (["--curves", "a.svg"], "no run in runs/tables/grid-paper has rounds with accuracy"),
    ],
)
def test_mistakes_with_these_options_are_one_sentence(grid: None, capsys: Output, words: list[str], said: str) -> None:
    assert invoke(["table", "grid.toml", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert len(error.strip().splitlines()) == 1


def test_progress_lines_show_the_metric_of_the_table_and_curves_are_drawn(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.toml").write_text(TABLE)
    words = ["--seeds", "0", "--jobs", "1", "--metric", "best_auc", "--format", "json", "--curves", "curves.svg"]
    assert invoke(["table", "mine.toml", *words]) == 0
    captured = capsys.readouterr()
    (table,) = json.loads(captured.out)
    for row in ("strict", "open"):
        value = table["rows"][row]["best_auc"]["values"]["0"]
        assert f"{row}-accuracy-" in captured.err
        assert f"best_auc {value:.1f}, done in" in captured.err
    drawing = Path("curves.svg").read_text()
    assert "<!-- strict -->" in drawing
    assert "<!-- auc -->" in drawing


def test_a_row_of_another_method_tells_once_what_it_drops(grid: None, capsys: Output) -> None:
    Path("grid.toml").write_text(GRID + '[rows.avg]\nmethod.name = "fedavg_fixmatch"\n')
    assert invoke(["table", "grid.toml"]) == 0
    assert capsys.readouterr().err.count("grid.toml: avg: method.name = 'fedavg_fixmatch' begins with its own") == 1

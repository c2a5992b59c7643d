"""What a person sees while a run goes on, in a terminal of 80 columns and in a file."""

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

from semifl import toml
from semifl.configuration.config import decode
from semifl.report.page import page
from semifl.running.context import BaselineProgress, Silent
from semifl.running.loop import start
from semifl.running.terminal import BaselineLines, Lines, Live, display, facts_of
from toys import toy_table
from written_runs import round_line

WORLD = SimpleNamespace(config=SimpleNamespace(run=SimpleNamespace(rounds=800, metric="balanced_accuracy")))


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Console:
    console = Console(file=io.StringIO(), force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr("semifl.running.terminal.Console", lambda **_: console)
    return console


def shown(live: Live) -> list[str]:
    """The lines that stand in the terminal now."""
    bar = live._bar
    console = Console(file=io.StringIO(), width=80, color_system=None)
    for each in bar.get_renderables():
        console.print(each)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


def test_labels_only_has_a_bar_of_its_own_and_lines_fit_80_columns(terminal: Console) -> None:
    with display() as live:
        assert isinstance(live, Live)
        (line,) = shown(live)
        assert line.startswith("preparing")
        assert "0/" not in line  # nothing is counted yet
        live.begin(WORLD, 1)
        live.baseline(BaselineProgress(1, 2, 0, 800))
        (line,) = shown(live)
        assert line.startswith("labels only, 1 of 2")
        assert "0/800" in line
        live.baseline(BaselineProgress(1, 2, 800, 800))
        assert "800/800" in shown(live)[0]
        live.baseline(BaselineProgress(2, 2, 2, 800))
        (line,) = shown(live)
        assert line.startswith("labels only, 2 of 2")
        assert "2/800" in line
        live.baseline(BaselineProgress(2, 2, 800, 800))
        live.labels_only(93.1)
        record = round_line(123, balanced_accuracy=98.7, abstained=[1, 2, 3], cohort=[1, 2, 3, 4])
        live.round(record, 99.1)
        line, facts = shown(live)
        assert line.startswith("round ")
        assert "123/800" in line
        assert facts == "balanced accuracy 98.7 % (best 99.1) · confident 50 % · 3 of 4 abstained"
        assert max(map(len, shown(live))) <= 80
    assert "labels only: balanced accuracy 93.1 %" in terminal.file.getvalue()


def test_a_run_that_goes_on_counts_from_where_it_was(terminal: Console) -> None:
    with display() as live:
        live.begin(WORLD, 41)
        live.baseline(BaselineProgress(1, 1, 800, 800))
        assert "40/800" in shown(live)[0]


def test_elsewhere_there_is_a_line_per_round(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    lines.begin(WORLD, 1)
    for model in (1, 2):
        for done in (0, 1, 2):
            lines.baseline(BaselineProgress(model, 2, done, 800))
    lines.labels_only(50.0)
    lines.round(round_line(1), 51.0)
    lines.warn("look out")
    assert capsys.readouterr().err.splitlines() == [
        "training for 800 rounds",
        "labels only, model 1 of 2: 0 of 800",
        "labels only, model 2 of 2: 0 of 800",
        "labels only: balanced accuracy 50.0 %",
        "round 1 of 800: balanced accuracy 51.0 % (best 51.0) · confident 50 %",
        "warning: look out",
    ]


def test_a_slow_labels_only_model_has_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("semifl.running.terminal.time.monotonic", lambda: clock[0])
    lines, told = BaselineLines(), []
    for done in range(6):  # four seconds each
        told.append(lines.line(BaselineProgress(1, 1, done, 5)))
        clock[0] += 4.0
    assert [line for line in told if line] == [
        "labels only, model 1 of 1: 0 of 5",
        "labels only, model 1 of 1: 3 of 5",
    ]


def test_a_file_fills_while_the_run_goes_on(tmp_path: Path) -> None:
    """A run of many rounds is looked at before it ends."""
    (tmp_path / "toy.toml").write_text(toml.dumps({**toy_table(), "rounds": 2000, "labels_only": False}))
    words = ["run", str(tmp_path / "toy.toml"), "--out", str(tmp_path / "run"), "--workers", "1"]
    code = f"from semifl.cli import main; main({words!r})"
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen([sys.executable, "-c", code], stdout=log, stderr=log, cwd=tmp_path, env=here)
    try:
        until = time.monotonic() + 60
        while "round 2 of 2000" not in (tmp_path / "log").read_text() and time.monotonic() < until:
            assert process.poll() is None
            time.sleep(0.1)
        assert "round 1 of 2000: accuracy" in (tmp_path / "log").read_text()
        assert process.poll() is None
    finally:
        process.kill()
        process.wait()


def test_the_page_of_a_run_that_goes_on_has_numbers_and_names(tmp_path: Path) -> None:
    seen: list[str] = []

    class Reading(Silent):
        def round(self, record, best) -> None:
            if record["round"] == 2:
                seen.append(page([tmp_path / "run"]))

    table = {**toy_table(), "rounds": 3}
    start(decode(table), tmp_path / "run", observer=Reading())
    (text,) = seen
    result = json.loads((tmp_path / "run/result.json").read_text())
    alone, (low, high) = result["labels_only_accuracy"], result["intervals"]["labels_only_accuracy"]
    second = json.loads((tmp_path / "run/rounds.jsonl").read_text().splitlines()[1])["accuracy"]
    assert f"<dt>accuracy so far</dt><dd>{second:.1f} %</dd>" in text
    assert f"<dt>labels only</dt><dd>{alone:.1f} % [{low:.1f}, {high:.1f}]</dd>" in text
    assert "green" in text  # a class by its name


def test_facts_are_in_the_metric_that_decides() -> None:
    assert facts_of(round_line(3), 60.0, "auc").startswith("AUC 73.0 % (best 60.0)")

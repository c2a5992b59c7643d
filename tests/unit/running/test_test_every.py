"""A model that is tested only every few rounds: `test_every`."""

import json
from pathlib import Path

import pytest
from safetensors import safe_open
from typer.testing import CliRunner

from semifl import toml
from semifl.cli import app
from semifl.configuration.build import build_world
from semifl.configuration.config import decode
from semifl.errors import UserError
from semifl.records.directory import RunDirectory
from semifl.records.metrics import best_shown, standing
from semifl.report.page import write_report
from semifl.running.context import Silent
from semifl.running.estimate import Estimate, estimate
from semifl.running.loop import resume, start
from semifl.running.reproduce import reproduce
from toys import toy_table, two_kinds_table

OF_THE_TEST = ("accuracy", "balanced_accuracy", "auc", "f1", "calibration_error")


def table(**keys: int) -> dict:
    return {**toy_table(), "labels_only": False, **keys}


def records(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]


def test_it_leaves_out_tests_and_moves_nothing_else(tmp_path: Path) -> None:
    every = start(decode(table(rounds=7)), tmp_path / "every")
    third = start(decode(table(rounds=7, test_every=3)), tmp_path / "third")
    lines = records(tmp_path / "third")
    assert [line["round"] for line in lines if "accuracy" in line] == [1, 3, 6]
    for full, line in zip(records(tmp_path / "every"), lines, strict=True):
        untested = {} if "accuracy" in line else {name: full.pop(name) for name in OF_THE_TEST} | {"loss": full["loss"]}
        assert "test" not in line["seconds"] if untested else "test" in line["seconds"]
        full["loss"] = None if untested else full["loss"]
        assert {**full, "seconds": 0} == {**line, "seconds": 0}
    assert third["accuracy"] == every["accuracy"]
    assert third["best_test_accuracy"] == max(third["accuracy"], *(lines[index]["accuracy"] for index in (0, 2, 5)))
    assert all(map(RunDirectory(tmp_path / "third").rounds().__contains__, lines))


def test_the_best_by_labels_held_out_is_always_tested(tmp_path: Path) -> None:
    result = start(decode(two_kinds_table(rounds=6, test_every=100)), tmp_path / "run")
    best = -1.0
    for line in records(tmp_path / "run"):
        better = line["validation_accuracy"] >= best  # the latest of those alike is kept
        best = max(best, line["validation_accuracy"])
        assert ("accuracy" in line) == better  # the first is better than none
    with safe_open(tmp_path / "run/model.safetensors", "pt") as file:
        kept = json.loads(file.metadata()["semifl"])
    assert kept["round"] == result["best_round"]
    assert kept["accuracy"] == result["best_accuracy"]


def test_it_resumes_and_reproduces(tmp_path: Path) -> None:
    start(decode(table(rounds=5, test_every=2)), tmp_path / "run")
    found = CliRunner().invoke(app, ["check", str(tmp_path / "run"), "--reproduce"])
    assert found.exit_code == 0, found.output
    found = CliRunner().invoke(app, ["resume", str(tmp_path / "run"), "--rounds", "7"])
    assert found.exit_code == 0, found.output
    assert [line["round"] for line in records(tmp_path / "run") if "accuracy" in line] == [1, 2, 4, 6]


def test_report_and_terminal_say_what_there_is(tmp_path: Path) -> None:
    start(decode(table(rounds=5, test_every=4)), tmp_path / "run")
    lines = records(tmp_path / "run")
    assert standing(lines[2], 61.25, "accuracy") == "not tested (best 61.2)"
    assert best_shown(lines[1:3], "accuracy") is None
    assert best_shown(lines, "accuracy") == max(lines[0]["accuracy"], lines[3]["accuracy"])
    page = tmp_path / "report.html"
    write_report([tmp_path / "run"], page)
    assert "Test accuracy" in page.read_text()


def test_an_estimate_counts_the_tests_that_there_will_be(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on a second each time it is read: one block of test pictures takes one second."""
    times = iter(range(10**6))
    monkeypatch.setattr("semifl.running.estimate.time.perf_counter", lambda: float(next(times)))
    tests = [estimate(build_world(decode(table(test_every=every))), 1, "cpu").seconds["test"] for every in (1, 4)]
    assert tests == [1.0, 0.25]


def test_zero_is_refused() -> None:
    with pytest.raises(UserError, match="test_every must be at least 1"):
        decode(table(test_every=0))


def test_check_names_it_where_testing_takes_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seconds, said in (({"server": 3.0, "test": 1.5}, True), ({"server": 3.0, "test": 0.5}, False)):
        found = Estimate(seconds=seconds)
        monkeypatch.setattr("semifl.running.estimate.estimate", lambda *_, found=found: found)
        (tmp_path / "config.toml").write_text(toml.dumps(table()), encoding="utf-8")
        shown = CliRunner().invoke(app, ["check", str(tmp_path / "config.toml")])
        assert shown.exit_code == 0, shown.output
        assert ("33 % of that is testing: test_every = 5" in shown.output) == said


def test_a_run_reproduces_though_it_was_tested_less_and_less(tmp_path: Path) -> None:
    class Cut(Silent):
        def round(self, record: dict, best: float | None) -> None:
            if record["round"] == 2:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        start(decode(table(rounds=4)), tmp_path / "run", observer=Cut())
    path = tmp_path / "run/config.toml"
    path.write_text(path.read_text().replace("test_every = 1", "test_every = 4"))
    resume(tmp_path / "run")
    assert ["accuracy" in line for line in records(tmp_path / "run")] == [True, True, False, True]
    assert reproduce(tmp_path / "run", 4, 1, "cpu").differs_at == 0
    lines = records(tmp_path / "run")
    lines[2]["digest"] = "another"
    (tmp_path / "run/rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert reproduce(tmp_path / "run", 4, 1, "cpu")[1:3] == (3, ["digest"])

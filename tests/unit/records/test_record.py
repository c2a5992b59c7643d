"""A line of rounds.jsonl and a result are taken only with all that is looked for in them."""

import json
from pathlib import Path
from typing import Any

import pytest

from semifl.cli import invoke
from semifl.configuration.config import decode
from semifl.errors import UserError
from semifl.records.directory import RunDirectory
from semifl.records.record import is_round, is_summary, number
from semifl.running.loop import start
from toys import toy_table

WRONG: list[Any] = ["high", None, [], {}, True, float("nan"), float("inf"), 10**400]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDirectory:
    directory = tmp_path_factory.mktemp("sound") / "run"
    start(decode({**toy_table(), "labels_only": False}), directory)
    return RunDirectory(directory)


def test_what_a_run_writes_is_sound(run: RunDirectory) -> None:
    assert all(map(is_round, run.rounds()))
    assert run.summary() == run.outcome() != {}


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_wrong_number_is_none(run: RunDirectory, wrong: Any) -> None:
    assert number(wrong) is None
    record, result = run.rounds()[0], run.outcome()
    for key in ("round", "accuracy", "bytes_up"):
        assert not is_round({**record, key: wrong})
    assert not is_round({**record, "seconds": {"total": wrong}})
    assert not is_round({**record, "class_histogram": [1, wrong]})
    assert not is_summary({**result, "best_accuracy": wrong})
    assert is_summary({**result, "labels_only_accuracy": wrong}) == (wrong is None)
    assert is_round({**record, "agreement": wrong}) == (wrong is None)


@pytest.mark.parametrize("key", ["round", "loss", "failed", "alerts", "agreement", "update_norm", "seconds"])
def test_a_line_without_a_key_is_not_gone_on_from(run: RunDirectory, key: str) -> None:
    record = {name: value for name, value in run.rounds()[0].items() if name != key}
    assert not is_round(record)


def test_half_a_result_is_not_whole(tmp_path: Path) -> None:
    (tmp_path / "result.json").write_text('{"accuracy": 90.0, "rounds": 3}')
    assert RunDirectory(tmp_path).outcome() == {"accuracy": 90.0, "rounds": 3}
    assert RunDirectory(tmp_path).summary() is None


def test_lines_that_do_not_belong_together_are_told(run: RunDirectory, tmp_path: Path) -> None:
    first, second = run.rounds()[:2]
    lines = [first, {**second, "validation_accuracy": 50.0}]
    (tmp_path / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(UserError, match=r"rounds\.jsonl is damaged"):
        RunDirectory(tmp_path).rounds_until(2)


@pytest.mark.parametrize("line", ["{}", "[", '{"round": 1}', '{"round": 1, "accuracy": "high"}', "null", "\x00"])
@pytest.mark.parametrize("verb", ["resume", "show", "report", "compare"])
def test_broken_rounds_of_a_finished_run_are_no_traceback(run: RunDirectory, verb: str, line: str) -> None:
    sound = (run.path / "rounds.jsonl").read_text()
    try:
        (run.path / "rounds.jsonl").write_text(f"{line}\n{sound}")
        assert invoke([verb, str(run.path)]) in (0, 2)
    finally:
        (run.path / "rounds.jsonl").write_text(sound)


@pytest.mark.parametrize("key", ["loss", "server_loss", "client_loss", "update_norm"])
def test_a_run_goes_on_after_a_round_that_diverged(run: RunDirectory, key: str) -> None:
    """Losses know no bound; only what is no number of the file's own is damage."""
    record = run.rounds()[0]
    assert is_round({**record, key: 3e23})
    assert is_round({**record, key: None})
    assert is_round({**record, "terms": {"server": {"loss": 3e23}, "clients": {}}})
    for wrong in (float("nan"), float("inf"), 10**400, "high", True):
        assert not is_round({**record, key: wrong})

"""Trackers: MLflow and Weights & Biases get the numbers of each round beside TensorBoard, by the same observer."""

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from semifl import toml
from semifl.cli import invoke
from semifl.configuration.config import decode
from semifl.errors import UserError
from semifl.running import trackers
from semifl.running.context import Silent
from semifl.running.loop import start
from toys import toy_table

TABLE = {**toy_table(), "rounds": 2}


def records(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]


def test_mlflow_has_a_run_in_its_file_store_that_a_resumed_run_goes_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    from mlflow import MlflowClient

    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    Path("toy.toml").write_text(toml.dumps(TABLE))
    assert invoke(["run", "toy.toml", "--out", "run", "--workers", "1", "--track", "mlflow"]) == 0
    assert invoke(["resume", "run", "--rounds", "3", "--workers", "1", "--track", "mlflow"]) == 0

    client = MlflowClient(tracking_uri=(tmp_path / "mlruns").as_uri())
    experiment = client.get_experiment_by_name("semifl")
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "run"
    assert run.info.status == "FINISHED"
    assert run.data.params["method.threshold"] == "0.3"
    history = client.get_metric_history(run.info.run_id, "accuracy")
    told = {each.step: each.value for each in history}
    assert told == {record["round"]: record["accuracy"] for record in records(Path("run"))}
    assert {"labels_only_accuracy", "clients/abstained", "seconds/total"} <= set(run.data.metrics)


def test_wandb_writes_files_that_can_be_sent_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb")
    monkeypatch.delenv("WANDB_MODE", raising=False)
    with trackers.tracked(["wandb"], tmp_path / "run", Silent()) as watcher:
        start(decode(TABLE), tmp_path / "run", observer=watcher)
    (file,) = (tmp_path / "run/wandb").glob("offline-run-*/run-*.wandb")
    expected = {record["round"]: record["accuracy"] for record in records(tmp_path / "run")}
    deadline = time.monotonic() + 30
    while (told := accuracies(file)) != expected and time.monotonic() < deadline:
        time.sleep(0.1)  # the process that writes may be a moment behind
    assert told == expected
    assert json.loads((tmp_path / "run/trackers.json").read_text())["wandb"] in file.name


def accuracies(file: Path) -> dict[int, float]:
    """What a file for Weights & Biases says, by round."""
    from wandb.proto import wandb_internal_pb2

    told = {}
    for data in log_records(file.read_bytes()):
        line = wandb_internal_pb2.Record()
        line.ParseFromString(data)
        found = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in line.history.item}
        if "accuracy" in found:
            told[found["round"]] = found["accuracy"]
    return told


def log_records(content: bytes, block: int = 32768, head: int = 7) -> Iterator[bytes]:
    """LevelDB's log format after a header of seven bytes: in each block chunks of checksum, length, kind and bytes."""
    at, parts = head, b""
    while at + head <= len(content):
        if block - at % block < head:
            at += block - at % block
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        parts += content[at + head : at + head + length]
        at += head + length
        if kind in (1, 4):  # whole, or the last of several
            yield parts
            parts = b""


class Broken:
    """Takes one round and then no more."""

    def __init__(self) -> None:
        self.rounds: list[int] = []

    def write(self, numbers: dict[str, float], round: int) -> None:
        assert all(isinstance(value, (int, float)) and math.isfinite(value) for value in numbers.values())
        self.rounds.append(round)
        if round == 1:
            raise ConnectionError("nobody listens")

    def close(self) -> None:
        raise AssertionError("it was given up before")


class Listener(Silent):
    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.rounds = 0

    def round(self, record: Any, best: float) -> None:
        self.rounds += 1

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def test_a_tracker_that_fails_is_told_of_once_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken, listener = Broken(), Listener()
    pytest.importorskip("tensorboard")
    monkeypatch.setattr("semifl.running.trackers.tensorboard.open_tracker", lambda directory, settings: broken)
    with trackers.tracked(["tensorboard"], tmp_path / "run", listener) as watcher:
        start(decode(TABLE), tmp_path / "run", observer=watcher)
    assert broken.rounds == [0, 1]
    assert listener.rounds == 2
    told = "tensorboard gets no more numbers, and the run goes on without it (ConnectionError: nobody listens)"
    assert listener.warnings == [told]


def test_a_name_that_is_no_tracker_leaves_no_run_behind(tmp_path: Path) -> None:
    with (
        pytest.raises(UserError, match="--track = 'mlfow' is not one of tensorboard, mlflow, wandb; did you mean"),
        trackers.tracked(["mlfow"], tmp_path / "run", Silent()),
    ):
        raise AssertionError("nothing may begin")
    assert not (tmp_path / "run").exists()

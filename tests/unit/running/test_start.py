"""Rounds that begin with what the labels alone have learned: `start = "labels"`."""

import json
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from semifl.configuration.config import decode
from semifl.errors import UserError
from semifl.running import labels_only, loop
from semifl.running.context import BaselineProgress, Silent
from semifl.running.labels_only import train_alone
from toys import toy_table

TABLE = {**toy_table(), "start": "labels", "rounds": 2}


def results(directory: Path) -> list:
    lines = [json.loads(line) for line in (directory / "rounds.jsonl").read_text().splitlines()]
    result = json.loads((directory / "result.json").read_text())
    return [{key: value for key, value in each.items() if "seconds" not in key} for each in [*lines, result]]


class Killed(Exception):
    pass


class KilledAfter(Silent):
    """So many rounds without clients."""

    model = 0

    def __init__(self, baselines: int) -> None:
        self.left = baselines

    def baseline(self, progress: BaselineProgress) -> None:
        self.left -= self.model == progress.model  # the first word on each model comes before its rounds
        self.model = progress.model
        if self.left == 0:
            raise Killed


def test_it_is_a_warm_start_with_what_the_labels_taught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = []

    def spy(context, method, server, name, *more):
        model = train_alone(context, method, server, name, *more)
        trained.append((name, server.labels, model.weights))
        return model

    monkeypatch.setattr(loop, "train_alone", spy)
    monkeypatch.setattr(labels_only, "train_alone", spy)
    table = {**TABLE, "data": {**TABLE["data"], "validation": 0.4}}
    loop.start(decode(table), tmp_path / "labels")
    (name, labels, weights), (also, more, _) = trained
    assert (name, also) == ("labels_only_start", "labels_only")
    assert len(labels) < len(more)  # labels that are held out to judge a model do not start it

    save_file({key: tensor.contiguous() for key, tensor in weights.items()}, tmp_path / "start.safetensors")
    warm = {**table, "start": "model", "model": {**table["model"], "weights": str(tmp_path / "start.safetensors")}}
    loop.start(decode(warm), tmp_path / "warm")
    assert results(tmp_path / "warm") == results(tmp_path / "labels")
    loop.start(decode({**table, "start": "model"}), tmp_path / "model")
    assert results(tmp_path / "model")[0]["digest"] != results(tmp_path / "labels")[0]["digest"]


def test_it_learns_with_random_numbers_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the rounds would show the server the very views that it has seen."""
    found = []

    def spy(*arguments):
        found.append(train_alone(*arguments).weights)
        return train_alone(*arguments)

    monkeypatch.setattr(loop, "train_alone", spy)
    monkeypatch.setattr(labels_only, "train_alone", spy)
    loop.start(decode(TABLE), tmp_path / "labels")
    loop.start(decode({**TABLE, "start": "model"}), tmp_path / "model")
    started, _, alone = found
    assert any(not torch.equal(started[name], alone[name]) for name in alone)


@pytest.mark.parametrize("after", [1, 2, 3])
def test_killed_before_the_first_round_and_resumed(tmp_path: Path, after: int) -> None:
    loop.start(decode(TABLE), tmp_path / "whole")
    with pytest.raises(Killed):
        loop.start(decode(TABLE), tmp_path / "cut", observer=KilledAfter(after))
    again = KilledAfter(100)
    loop.resume(tmp_path / "cut", observer=again)
    assert again.left == 100 - (4 - after)  # two rounds of two models, nothing twice
    assert results(tmp_path / "cut") == results(tmp_path / "whole")


class KilledInRoundTwo(Silent):
    def round(self, record: dict, best: float) -> None:
        if record["round"] == 1:
            raise Killed


def test_killed_between_rounds_and_resumed(tmp_path: Path) -> None:
    loop.start(decode(TABLE), tmp_path / "whole")
    with pytest.raises(Killed):
        loop.start(decode(TABLE), tmp_path / "cut", observer=KilledInRoundTwo())
    again = KilledAfter(100)
    loop.resume(tmp_path / "cut", observer=again)
    assert again.left == 100
    assert results(tmp_path / "cut") == results(tmp_path / "whole")


def test_how_long_the_start_took_is_written_down(tmp_path: Path) -> None:
    """No round's seconds hold it."""
    began = time.perf_counter()
    loop.start(decode(TABLE), tmp_path / "run")
    took = time.perf_counter() - began
    events = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
    (start,) = (each for each in events if each["event"] == "started from labels")
    assert 0 < start["seconds"] < took


def test_a_server_that_learns_nothing_cannot_start_so() -> None:
    with pytest.raises(UserError, match='start = "labels" needs a server that learns; fedavg'):
        decode({**TABLE, "method": {"name": "fedavg"}})


def test_in_one_place_the_clients_pictures_are_there_after_the_start(tmp_path: Path) -> None:
    method = {"name": "centralized", "batch": 4, "objective": {"name": "fixmatch", "ratio": 2, "threshold": 0.0}}
    loop.start(decode({**TABLE, "method": method}), tmp_path / "run")
    alone = {**method, "objective": {"name": "supervised"}}
    loop.start(decode({**TABLE, "method": alone}), tmp_path / "alone")
    taught, not_taught = (results(tmp_path / name) for name in ("run", "alone"))
    assert taught[-1]["labels_only_accuracy"] == not_taught[-1]["labels_only_accuracy"]
    assert taught[0]["digest"] != not_taught[0]["digest"]

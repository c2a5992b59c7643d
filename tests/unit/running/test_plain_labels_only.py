"""Where a method makes more of the labels than plain training, what came from where: labels, their use, clients."""

import json
from pathlib import Path

import pytest

from semifl.cli.display import outcome
from semifl.configuration.config import decode
from semifl.report.page import page
from semifl.running.context import BaselineProgress, Silent
from semifl.running.loop import resume, start
from toys import toy_table

SHARED = {"lr": 0.05, "server_epochs": 1}


def table(**method: object) -> dict:
    """The clients' half is cut short: it is not what is looked at."""
    return {**toy_table(), "rounds": 2, "method": {**SHARED, "client_epochs": 1, **method}}


class Killed(Exception):
    pass


class KilledInTheBaselines(Silent):
    """In the third round that is trained on labels alone, the first of the second such model."""

    seen = model = 0

    def baseline(self, progress: BaselineProgress) -> None:
        self.seen += self.model == progress.model  # the first word on each model comes before its rounds
        self.model = progress.model
        if self.seen == 3:
            raise Killed


class StoppedAfterOne(Silent):
    def round(self, record: dict, best: float | None) -> None:
        raise StopIteration


def test_plain_labels_only_is_semifls(tmp_path: Path) -> None:
    ours = start(decode(table(name="balanced", warmup_steps=3, server_steps=4)), tmp_path / "balanced")
    semifl = start(decode(table(name="semifl", clip_norm=1.0)), tmp_path / "semifl")
    for name in ("accuracy", "balanced_accuracy", "auc", "f1", "calibration_error"):
        assert ours[f"plain_labels_only_{name}"] == semifl[f"labels_only_{name}"]
    assert not [name for name in semifl if name.startswith("plain_")]  # it has no other


def test_plain_labels_only_has_a_start_of_its_own(tmp_path: Path) -> None:
    """What the plain server is compared for must not have taught it first."""
    ours = start(
        decode({**table(name="balanced", warmup_steps=3, server_steps=4), "start": "labels"}), tmp_path / "balanced"
    )
    semifl = start(decode({**table(name="semifl", clip_norm=1.0), "start": "labels"}), tmp_path / "semifl")
    for name in ("accuracy", "balanced_accuracy", "auc", "f1", "calibration_error"):
        assert ours[f"plain_labels_only_{name}"] == semifl[f"labels_only_{name}"]


def test_nothing_is_trained_twice(tmp_path: Path) -> None:
    config = decode(table(name="balanced", warmup_steps=3, server_steps=4))
    whole = start(config, tmp_path / "whole")
    with pytest.raises(Killed):
        start(config, tmp_path / "cut", observer=KilledInTheBaselines())
    again = KilledInTheBaselines()
    again.seen = -10
    resumed = resume(tmp_path / "cut", observer=again)
    assert again.seen == -10 + 1  # of four rounds of two models three were done
    assert {name: value for name, value in resumed.items() if "seconds" not in name} == {
        name: value for name, value in whole.items() if "seconds" not in name
    }


def test_the_better_of_both_is_the_baseline_and_the_rest_is_behind_a_fold(tmp_path: Path) -> None:
    result = start(decode(table(name="balanced", warmup_steps=3, server_steps=4)), tmp_path / "run")
    result |= {"accuracy": 90.0, "labels_only_accuracy": 84.5, "plain_labels_only_accuracy": 92.25}
    del result["difference"]
    (tmp_path / "run/result.json").write_text(json.dumps(result))
    told = "\n".join(outcome(result))
    assert "Compared with labels alone: accuracy -2.2 points" in told
    assert "labels only  92.2 %" in told
    assert "84.5" not in told
    head, fold = page([tmp_path / "run"]).split('<details id="parts">')
    assert "92.2 %" in head
    assert "84.5 %" not in head
    assert "84.5 %" in fold


def test_progress_says_which_model_of_how_many(tmp_path: Path) -> None:
    told: list[BaselineProgress] = []

    class Listening(Silent):
        def baseline(self, progress: BaselineProgress) -> None:
            told.append(progress)

    config = {**table(name="balanced", warmup_steps=3, server_steps=4), "start": "labels", "rounds": 1}
    start(decode(config), tmp_path / "run", observer=Listening())
    models = [each.model for each in told]
    assert sorted(set(models)) == [1, 2, 3, 4]  # the start of the rounds, that of the plain server, plain, all
    assert models == sorted(models)
    assert {each.models for each in told} == {4}
    assert [each.done for each in told] == [0, 1] * 4
    assert str(told[2]) == "labels only, model 2 of 4: 0 of 1"


def test_a_plain_start_that_was_interrupted_is_gone_on_with(tmp_path: Path) -> None:
    """Of a run that had rounds already when a person asked for labels only."""
    config = {**table(name="balanced", warmup_steps=3, server_steps=4), "start": "labels", "rounds": 3}
    whole = start(decode(config), tmp_path / "whole")
    start(decode({**config, "labels_only": False}), tmp_path / "cut", observer=StoppedAfterOne())
    path = tmp_path / "cut/config.toml"
    path.write_text(path.read_text().replace("labels_only = false", "labels_only = true"))
    killed = KilledInTheBaselines()
    killed.seen = 1  # in the second round of the plain start
    with pytest.raises(Killed):
        resume(tmp_path / "cut", observer=killed, rounds=3)
    resumed = resume(tmp_path / "cut")
    assert resumed["plain_labels_only_accuracy"] == whole["plain_labels_only_accuracy"]
    assert resumed["accuracy"] == whole["accuracy"]

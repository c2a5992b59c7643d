"""More rounds for a run that has ended: nothing is lost if it cannot have them, and all of it is the same run after."""

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

import semifl
from semifl import FederatedData, SemiFL, toml
from semifl.configuration.config import decode, override, read
from semifl.errors import UserError
from semifl.running.context import BaselineProgress, Silent
from semifl.running.loop import resume, start
from semifl.running.reproduce import reproduce
from toys import toy_table, two_kinds_table


def records(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]


def kept(run: Path) -> dict:
    with safe_open(run / "model.safetensors", "pt") as file:
        return json.loads(file.metadata()["semifl"])


def set_in(run: Path, *settings: str) -> None:
    (run / "config.toml").write_text(toml.dumps(override(read(run / "config.toml"), list(settings))))


class Killed(Exception):
    pass


class KilledAfter(Silent):
    def __init__(self, last: int) -> None:
        self.last = last

    def round(self, record: dict, best: float | None) -> None:
        if record["round"] == self.last:
            raise Killed


class Counting(Silent):
    baselines = 0

    def baseline(self, progress: BaselineProgress) -> None:
        self.baselines += bool(progress.done)


def test_a_run_that_cannot_go_on_keeps_its_result(tmp_path: Path) -> None:
    """One of arrays can only be gone on with by the program that has them."""
    pictures = np.random.default_rng(0).random((24, 8, 8))
    labels = np.arange(24) % 3
    data = FederatedData(
        labeled=(pictures[:9], labels[:9]), clients=[pictures[9:15]], test=(pictures[15:], labels[15:])
    )
    method = SemiFL(activity_rate=1.0, client_epochs=1, server_epochs=1)
    semifl.train(method, model="cnn", on=data, rounds=2, out=tmp_path / "run")
    before = {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()}
    with pytest.raises(UserError, match="Python"):
        resume(tmp_path / "run", rounds=4)
    assert {path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()} == before
    assert semifl.load(tmp_path / "run").rounds


@pytest.mark.parametrize("keys", [{"guard": True}, {}], ids=["guarded", "held out"])
def test_more_rounds_after_the_final_model_was_kept_can_be_interrupted(tmp_path: Path, keys: dict) -> None:
    """The final model took the place of the best of the rounds, which the checkpoint knows."""
    for name in ("whole", "cut"):
        start(decode(two_kinds_table(rounds=2, **keys)), tmp_path / name)
    resume(tmp_path / "whole", rounds=6)
    with pytest.raises(Killed):
        resume(tmp_path / "cut", rounds=6, observer=KilledAfter(4))
    resume(tmp_path / "cut")
    assert (tmp_path / "cut/model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()


def test_the_model_that_is_kept_is_the_one_that_the_result_tells_of(tmp_path: Path) -> None:
    """The final model was the best at first; later rounds bring one as good as that of the first, and two worse."""
    table = {**toy_table(lr=0.02, server_epochs=1), "rounds": 1, "seed": 10, "labels_only": False}
    table["data"] |= {"labeled": 24, "validation": 0.5, "noise": 150}
    assert start(decode(table), tmp_path / "run")["best_round"] == "final"
    result = resume(tmp_path / "run", rounds=4)
    about, history = kept(tmp_path / "run"), [line["validation_accuracy"] for line in records(tmp_path / "run")]
    latest = max(place for place, value in enumerate(history, 1) if value == max(history))
    assert about["round"] == result["best_round"] == latest < len(history)
    assert about["accuracy"] == result["best_accuracy"]
    assert resume(tmp_path / "run", rounds=5)["rounds"] == 5


def test_a_rule_that_has_ended_a_run_would_end_it_again(tmp_path: Path) -> None:
    start(decode({**toy_table(), "stop": {"minutes": 1e-6}}), tmp_path / "run")
    result = (tmp_path / "run/result.json").read_bytes()
    with pytest.raises(UserError, match=r"was ended by stop\.minutes after 1 rounds.*raise stop\.minutes"):
        resume(tmp_path / "run", rounds=9)
    assert (tmp_path / "run/result.json").read_bytes() == result
    assert resume(tmp_path / "run")["rounds"] == 1
    set_in(tmp_path / "run", "stop.minutes=60.0")
    assert resume(tmp_path / "run")["rounds"] == 3  # as many as it was to have
    start(decode(toy_table()), tmp_path / "whole")
    assert [each["digest"] for each in records(tmp_path / "run")] == [
        each["digest"] for each in records(tmp_path / "whole")
    ]


@pytest.mark.parametrize("last", [1, 2])
def test_rounds_changed_by_hand_are_those_that_were_asked_for(tmp_path: Path, last: int) -> None:
    """As if by `semifl resume --rounds`: the labels-only model is trained anew, for as many."""
    for name in ("asked", "edited"):
        with pytest.raises(Killed):
            start(decode({**toy_table(), "rounds": 6}), tmp_path / name, observer=KilledAfter(last))
    asked = resume(tmp_path / "asked", rounds=4)
    set_in(tmp_path / "edited", "rounds=4")
    edited = resume(tmp_path / "edited")
    assert {key: value for key, value in edited.items() if "seconds" not in key} == {
        key: value for key, value in asked.items() if "seconds" not in key
    }
    events = [json.loads(line) for line in (tmp_path / "edited/events.jsonl").read_text().splitlines()]
    (changed,) = [event for event in events if event["event"] == "rounds changed"]
    assert (changed["before"], changed["rounds"], changed["after"]) == (6, 4, last)


def test_fewer_rounds_by_hand_than_there_are_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(Killed):
        start(decode({**toy_table(), "rounds": 6}), tmp_path / "run", observer=KilledAfter(3))
    set_in(tmp_path / "run", "rounds=2")
    with pytest.raises(UserError, match="has 3 rounds already, so it cannot be resumed to 2"):
        resume(tmp_path / "run")


def test_what_the_rounds_began_with_is_not_trained_again(tmp_path: Path) -> None:
    start(decode({**toy_table(), "rounds": 2, "start": "labels"}), tmp_path / "run")
    watcher = Counting()
    resume(tmp_path / "run", rounds=5, observer=watcher)
    assert watcher.baselines == 5  # labels alone, for as many rounds as the run has now


def test_rounds_before_the_change_reproduce(tmp_path: Path) -> None:
    start(decode({**toy_table(), "rounds": 2, "start": "labels"}), tmp_path / "run")
    resume(tmp_path / "run", rounds=5)
    verdict = reproduce(tmp_path / "run", 5, 1, "cpu")
    assert (verdict.rounds, verdict.differs_at) == (2, 0)


def test_a_repetition_does_not_go_by_the_clock(tmp_path: Path) -> None:
    start(decode({**toy_table(), "rounds": 2}), tmp_path / "run")
    set_in(tmp_path / "run", "stop.minutes=1e-6")
    verdict = reproduce(tmp_path / "run", 2, 1, "cpu")
    assert (verdict.rounds, verdict.differs_at) == (2, 0)


def test_a_run_that_somebody_ended_goes_on_when_asked_for_its_rounds(tmp_path: Path) -> None:
    class Enough(Silent):
        def round(self, record: dict, best: float | None) -> None:
            if record["round"] == 1:
                raise StopIteration

    table = {**toy_table(), "labels_only": False}
    start(decode(table), tmp_path / "whole")
    assert start(decode(table), tmp_path / "run", observer=Enough())["rounds"] == 1
    assert resume(tmp_path / "run")["rounds"] == 1  # without a word it stays what somebody wanted
    assert resume(tmp_path / "run", rounds=3)["rounds"] == 3
    assert [each["digest"] for each in records(tmp_path / "run")] == [
        each["digest"] for each in records(tmp_path / "whole")
    ]

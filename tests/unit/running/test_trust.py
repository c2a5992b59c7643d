"""Runs you can trust: failures, rejected updates, alerts, the guard, reproduction."""

import dataclasses
import json
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Literal

import pytest
import torch

from semifl import toml
from semifl.configuration.config import Chosen, Config, decode
from semifl.errors import RunStopped, UserError
from semifl.intervals import standard_error
from semifl.learning.batchnorm import Moments
from semifl.learning.evaluation import Score
from semifl.learning.weights import Snapshot
from semifl.methods.semifl import SemiFL
from semifl.running.context import Silent
from semifl.running.finish import _choose
from semifl.running.guard import Guard, beats, first_guard, judge, what_it_can_tell
from semifl.running.loop import resume, start, start_or_resume
from semifl.running.reproduce import reproduce
from toys import toy_table, two_kinds_table


@dataclass(frozen=True)
class Troubled(SemiFL):
    """SemiFL whose client 2 does harm from round 2 on."""

    trouble: Literal["raise", "nan", "shape", "name", "none"] = "none"

    def client_update(self, client, model, t):
        update = super().client_update(client, model, t)
        if client.seed.path[-1] != 2 or t.index < 2 or self.trouble == "none":
            return update
        if self.trouble == "raise":
            raise ZeroDivisionError("the disk of this client is full of zeros")
        change = dict(update.change)
        name = next(iter(change))
        if self.trouble == "nan":
            change[name] = torch.full_like(change[name], torch.nan)
        elif self.trouble == "shape":
            change[name] = change[name][:1]
        else:
            change["extra"] = change.pop(name)
        return update._replace(change=change)


def everybody(**top) -> Config:
    """All four clients take part in every round, and keep everything."""
    return decode({**toy_table(activity_rate=1.0, threshold=0.0), "labels_only": False, **top})


def trouble_config(trouble: str, **top) -> Config:
    config = everybody(**top)
    values = {each.name: getattr(config.method.thing, each.name) for each in dataclasses.fields(config.method.thing)}
    method = Troubled(**values, trouble=trouble)
    return replace(config, method=Chosen("troubled", method))


def records(directory: Path) -> list[dict]:
    return [json.loads(line) for line in (directory / "rounds.jsonl").read_text().splitlines()]


def events(directory: Path) -> list[dict]:
    path = directory / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_client_that_raises_stops_the_run_with_its_name_and_round(tmp_path: Path) -> None:
    with pytest.raises(RunStopped, match="client 2 failed in round 2: ZeroDivisionError: the disk of this client"):
        start(trouble_config("raise"), tmp_path / "run")
    assert [record["round"] for record in records(tmp_path / "run")] == [1]


def test_a_tolerated_failure_is_recorded_and_the_others_go_on(tmp_path: Path) -> None:
    with pytest.raises(RunStopped, match="client 2 failed in round 3"):
        start(trouble_config("raise", max_failures=1), tmp_path / "run")
    record = records(tmp_path / "run")[1]
    assert record["failed"] == [2]
    assert record["cohort"] == [0, 1, 2, 3]
    assert [event["client"] for event in events(tmp_path / "run") if event["event"] == "failed"] == [2]
    result = start(trouble_config("raise", max_failures=2), tmp_path / "more")
    assert result["rounds"] == 3


def test_a_limit_of_failures_that_was_lowered_since_allows_no_more(tmp_path: Path) -> None:
    table = {**toy_table(activity_rate=1.0, threshold=0.0), "labels_only": False, "rounds": 5, "max_failures": 2}
    table["method"] |= {"name": "unit.running.test_trust:Troubled", "trouble": "raise"}
    with pytest.raises(RunStopped, match="client 2 failed in round 4"):
        start(decode(table), tmp_path / "run")
    path = tmp_path / "run/config.toml"
    path.write_text(path.read_text().replace("max_failures = 2", "max_failures = 1"))
    with pytest.raises(RunStopped, match="client 2 failed in round 4"):
        resume(tmp_path / "run")
    assert [record["failed"] for record in records(tmp_path / "run")] == [[], [2], [2]]


@pytest.mark.parametrize(
    ("trouble", "reason"),
    [("nan", "has values that are not finite"), ("shape", "and should be"), ("name", "its names differ")],
)
def test_a_bad_update_never_touches_the_average(tmp_path: Path, trouble: str, reason: str) -> None:
    start(trouble_config(trouble), tmp_path / "run")
    record = records(tmp_path / "run")[1]
    assert record["rejected"] == [2]
    assert record["alerts"] == ["rejected"]
    (event, *_) = [event for event in events(tmp_path / "run") if event["event"] == "rejected"]
    assert (event["client"], event["round"]) == (2, 2)
    assert reason in event["reason"]
    assert record["update_norm"] < 1e6


def exploding_config(policy: str) -> Config:
    config = everybody(health={"nonfinite": policy})
    return replace(config, method=Chosen("semifl", replace(config.method.thing, lr=1e30)))


def test_a_run_that_is_not_finite_stops_if_the_policy_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunStopped, match="not a finite number"):
        start(exploding_config("stop"), tmp_path / "run")


def test_a_skipped_round_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    start(exploding_config("skip"), tmp_path / "run")
    first, second, third = records(tmp_path / "run")
    assert first["alerts"] == ["not finite"]
    assert first["skipped"]
    assert first["digest"] == second["digest"] == third["digest"]  # the first weights, three times


def test_a_warning_is_shown_once(tmp_path: Path) -> None:
    shown: list[str] = []

    class Listening(Silent):
        def warn(self, message: str) -> None:
            shown.append(message)

    start(trouble_config("nan"), tmp_path / "run", observer=Listening())
    assert len(shown) == 1
    assert shown[0].startswith("round 2: updates of clients were turned away")


# falling back


@dataclass(frozen=True)
class Spoiled(SemiFL):
    """SemiFL whose clients ruin the model in one round."""

    spoiled: int = 0

    def client_update(self, client, model, t):
        update = super().client_update(client, model, t)
        if update is None or t.index != self.spoiled:
            return update
        return update._replace(change={name: torch.full_like(each, 50.0) for name, each in update.change.items()})


def collapsing(policy: str, rounds: int, spoiled: int) -> Config:
    table = {**toy_table(activity_rate=1.0, threshold=0.0), "labels_only": False, "rounds": rounds}
    config = decode({**table, "health": {"exploding": policy, "explode_factor": 3.0}})
    fields = {each.name: getattr(config.method.thing, each.name) for each in dataclasses.fields(config.method.thing)}
    return replace(config, method=Chosen("semifl", Spoiled(**fields, spoiled=spoiled)))


def test_a_run_falls_back_to_its_last_sound_model_and_says_so(tmp_path: Path) -> None:
    shown: list[str] = []

    class Listening(Silent):
        def warn(self, message: str) -> None:
            shown.append(message)

    start(collapsing("fallback", 7, spoiled=5), tmp_path / "back", observer=Listening())
    start(collapsing("warn", 7, spoiled=5), tmp_path / "on")
    back, on = records(tmp_path / "back"), records(tmp_path / "on")
    assert [each["digest"] for each in back[:4]] == [each["digest"] for each in on[:4]]
    assert back[4]["alerts"] == on[4]["alerts"] == ["exploding"]
    assert back[4]["back_to"] == 4
    assert "back_to" not in on[4]
    assert back[4]["digest"] != on[4]["digest"]
    (said,) = [line for line in shown if line.startswith("round 5: the model moved much further")]
    assert said.endswith("the run goes back to its last sound model")
    # The run is sound again: the next round moves the model about as far as the first ones did.
    assert back[5]["update_norm"] < 3 * max(each["update_norm"] for each in back[:4])


def test_a_fallback_survives_an_interruption(tmp_path: Path) -> None:
    class Cut(Silent):
        def round(self, record, best) -> None:
            if record["round"] == 4:
                raise KeyboardInterrupt

    config = collapsing("fallback", 6, spoiled=5)
    start(config, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        start(config, tmp_path / "cut", observer=Cut())
    start_or_resume(config, tmp_path / "cut")
    whole, cut = ([each["digest"] for each in records(tmp_path / name)] for name in ("whole", "cut"))
    assert cut == whole


@dataclass(frozen=True)
class Restless(SemiFL):
    """SemiFL whose clients take steps far too long in one round, and keep norms that show it."""

    restless: int = 4

    def client_sgd(self, t):
        sgd = super().client_sgd(t)
        return replace(sgd, lr=1000 * sgd.lr) if t.index == self.restless else sgd


@pytest.mark.parametrize("policy", ["skip", "fallback"])
def test_what_clients_remember_of_an_undone_round_is_undone_too(tmp_path: Path, policy: str) -> None:
    class Cut(Silent):
        def round(self, record, best) -> None:
            if record["round"] == 4:
                raise KeyboardInterrupt

    table = {**toy_table(activity_rate=1.0, threshold=0.0, local_norm=True), "labels_only": False, "rounds": 5}
    table["method"]["name"] = "unit.running.test_trust:Restless"
    config, run = decode({**table, "health": {"exploding": policy}}), tmp_path / "run"
    start(config, run)
    undone = records(run)[3]
    assert "exploding" in undone["alerts"]
    assert undone["skipped"] or undone["back_to"] == 3
    assert sorted(path.stem for path in (run / "checkpoint/memory/0").iterdir()) == ["3", "5"]
    with pytest.raises(KeyboardInterrupt):
        start(config, tmp_path / "cut", observer=Cut())
    resume(tmp_path / "cut")
    assert [each["digest"] for each in records(tmp_path / "cut")] == [each["digest"] for each in records(run)]


# the guard


def score(right: int, wrong: int) -> Score:
    labels = torch.zeros(right + wrong, dtype=torch.int64)
    return Score(0.0, torch.tensor([[right, wrong], [0, 0]]), torch.full((right + wrong, 2), 0.5), labels)


def counts(found: Score) -> list[list[int]]:
    return found.confusion.tolist()


def test_the_standard_error_of_an_accuracy_by_hand() -> None:
    # 80 % of 40: Laplace's share (32 + 1) / 42 = 0.785714; √(0.785714 · 0.214286 / 40) = 0.064880.
    assert standard_error("accuracy", 80.0, counts(score(32, 8))) == pytest.approx(6.4880, abs=1e-3)
    assert standard_error("accuracy", 100.0, counts(score(10, 0))) > 0


def two_classes(of_zero: tuple[int, int], of_one: tuple[int, int]) -> Score:
    """Right and wrong of each of two classes."""
    confusion = torch.tensor([of_zero, of_one[::-1]])
    labels = torch.tensor([0] * sum(of_zero) + [1] * sum(of_one))
    return Score(0.0, confusion, torch.full((len(labels), 2), 0.5), labels)


def test_the_standard_errors_of_other_metrics_by_hand() -> None:
    found = two_classes((9, 1), (12, 8))
    # Balanced accuracy of 75 %: shares (7.5 + 1) / 12 and (15 + 1) / 22; √(s (1 − s) / n) each, their root sum over 2.
    first, second = 8.5 / 12, 16 / 22
    by_hand = (first * (1 - first) / 10 + second * (1 - second) / 20) ** 0.5 / 2
    assert standard_error("balanced_accuracy", 75.0, counts(found)) == pytest.approx(100 * by_hand)
    # F1: (drawn + said) / 2 is (10 + 17) / 2 of class 0 and (20 + 13) / 2 of class 1.
    shares = [(0.75 * n + 1) / (n + 2) for n in (13.5, 16.5)]
    by_hand = sum(s * (1 - s) / n for s, n in zip(shares, (13.5, 16.5), strict=True)) ** 0.5 / 2
    assert standard_error("f1", 75.0, counts(found)) == pytest.approx(100 * by_hand)
    # Hanley and McNeil for an area of (0.75 · 200 + 1) / 202 with 10 of one and 20 of the other, the larger of both.
    area = 151 / 202
    q1, q2 = area / (2 - area), 2 * area**2 / (1 + area)
    errors = [
        ((area * (1 - area) + (a - 1) * (q1 - area**2) + (b - 1) * (q2 - area**2)) / 200) ** 0.5
        for a, b in ((10, 20), (20, 10))
    ]
    assert standard_error("auc", 75.0, counts(found)) == pytest.approx(100 * max(errors))
    assert "±13 points" in what_it_can_tell(score(32, 8), "accuracy")


def test_the_guard_goes_back_to_the_best_model_only_if_a_new_one_is_clearly_worse() -> None:
    method = SemiFL()
    good = {"w": torch.ones(2)}
    guard = Guard(good, 80.0, 0)
    state = method.start({"w": torch.zeros(2)})
    tested = Snapshot({"w": torch.full((2,), 5.0)}, {"norm": Moments(torch.zeros(2), torch.ones(2), 9)})
    better, remembered = judge(guard, tested, score(33, 7), "accuracy", state, method)
    assert better is state
    assert (remembered.value, remembered.weights, remembered.stats) == (82.5, tested.weights, tested.stats)
    same, remembered = judge(
        guard, tested, score(28, 12), "accuracy", state, method
    )  # 70 %: within two standard errors
    assert same is state
    assert remembered == guard
    back, remembered = judge(guard, tested, score(26, 14), "accuracy", state, method)  # 65 %: beyond them
    assert back.weights is good
    assert float(back.past.first["w"].abs().sum()) == 0
    assert remembered.fallbacks == 1


@pytest.mark.parametrize(("then", "again", "kept"), [(90.0, 36, "the best"), (90.0, 20, "the final")])
def test_the_guards_model_is_kept_with_its_statistics_if_it_still_does_better(then, again, kept) -> None:
    """The final model has 30 of 40 labels held out right; the best one had 90 % once, and is judged anew."""
    final, stats = Snapshot({}, {}), {"norm": Moments(torch.zeros(2), torch.ones(2), 9)}
    guard = Guard({"w": torch.ones(2)}, then, 0, stats)
    server = SimpleNamespace(grade=lambda model, _: score(30, 10) if model is final else score(again, 40 - again))
    context = SimpleNamespace(server=server, metric="accuracy")
    model, _ = _choose(context, final, {"train": SimpleNamespace(validation=score(4, 36))}, guard)
    assert model == {"the best": Snapshot(guard.weights, stats), "the final": final}[kept]


def test_a_model_must_beat_its_rival_by_more_than_chance() -> None:
    assert not beats(score(34, 6), score(32, 8), "accuracy")  # 85 against 80 ± 6.5
    assert beats(score(35, 5), score(32, 8), "accuracy")  # 87.5
    assert first_guard({}).value == 0


def guarded_table(**method) -> dict:
    table = {**toy_table(**method), "guard": True, "rounds": 4}
    table["data"] |= {"labeled": 24, "validation": 0.5, "clients": 3}
    return table


def test_a_guarded_run_says_what_it_kept_and_resumes_exactly(tmp_path: Path) -> None:
    class Stop(Silent):
        def round(self, record, best) -> None:
            if record["round"] == 2:
                raise KeyboardInterrupt

    result = start(decode(guarded_table()), tmp_path / "whole")
    assert result["guard"]["kept"] in ("the clients' model", "a labels-only model trained on all labels")
    assert result["labels_only_accuracy"] is not None
    with pytest.raises(KeyboardInterrupt):
        start(decode(guarded_table()), tmp_path / "cut", observer=Stop())
    resume(tmp_path / "cut")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert (cut / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    strip = [{**record, "seconds": None} for record in records(cut)]
    assert strip == [{**record, "seconds": None} for record in records(whole)]


def test_when_clients_bring_nothing_the_guard_keeps_a_labels_only_model(tmp_path: Path) -> None:
    result = start(decode(guarded_table(threshold=1.0)), tmp_path / "run")
    assert result["guard"]["kept"] == "a labels-only model trained on all labels"
    assert result["accuracy"] == result["labels_only_accuracy"]


def test_a_labels_only_model_is_not_judged_by_labels_it_has_learned_from(tmp_path: Path) -> None:
    """Its threshold is even, its card says what it learned from, and the best round is one of the rounds."""
    table = two_kinds_table(guard=True, rounds=2)
    table["method"] |= {"threshold": 1.0, "lr": 0.001}
    result = start(decode(table), tmp_path / "run")
    assert result["guard"]["kept"] == "a labels-only model trained on all labels"
    for name in ("decision_threshold", "sensitivity", "specificity"):
        assert result[name] == result[f"labels_only_{name}"]
    assert result["decision_threshold"] == 0.5
    assert result["best_round"] in (1, 2, "final")
    card = (tmp_path / "run/model.md").read_text(encoding="utf-8")
    assert "| labeled pictures | 24 at the server; by class" in card
    assert "made by itself" not in card
    assert "an even one" in card


def test_a_guard_needs_labels_held_out() -> None:
    with pytest.raises(UserError, match=r"guard = true needs data\.validation"):
        decode({**toy_table(), "guard": True})


# reproduction


def test_a_run_reproduces_and_a_forged_one_does_not(tmp_path: Path) -> None:
    start(decode(toy_table()), tmp_path / "run")
    verdict = reproduce(tmp_path / "run", 2, workers=1, device="cpu")
    assert verdict == (2, 0, [], {})
    lines = (tmp_path / "run/rounds.jsonl").read_text().splitlines()
    forged = {**json.loads(lines[1]), "accuracy": 99.9}
    (tmp_path / "run/rounds.jsonl").write_text("\n".join([lines[0], json.dumps(forged)]) + "\n")
    verdict = reproduce(tmp_path / "run", 2, workers=1, device="cpu")
    assert (verdict.differs_at, verdict.fields) == (2, ["accuracy"])


def test_a_later_format_is_refused_with_a_sentence(tmp_path: Path) -> None:
    start(decode(toy_table()), tmp_path / "run")
    path = tmp_path / "run/environment.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 99}))
    with pytest.raises(UserError, match="has format 99, this version reads 4"):
        resume(tmp_path / "run")


def test_a_project_is_not_taken_for_a_run(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "config.toml").write_text(toml.dumps(decode(toy_table()).table()))
    with pytest.raises(UserError, match="is a project and not a run"):
        resume(project)
    assert [path.name for path in project.iterdir()] == ["config.toml"]


def test_a_model_that_does_not_fit_leaves_no_run_behind(tmp_path: Path) -> None:
    table = toy_table()
    table["model"] = {"name": "toys:toy_model", "hidden": 6, "classes": 3}
    wrong = {**table, "model": {"name": "torch.nn:Flatten"}}
    with pytest.raises(UserError, match="the model"):
        start(decode(wrong), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_the_guard_is_refused_where_it_has_no_rival(tmp_path: Path) -> None:
    table = toy_table()
    table["data"] = {**table["data"], "labeled": 12, "validation": 0.25}
    table["method"] = {"name": "fedavg"}
    with pytest.raises(UserError, match="guard = true does not go with"):
        start(decode({**table, "guard": True}), tmp_path / "run")

"""What a finished run says of its model is the same wherever it is said."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from semifl.api import result as api_result
from semifl.cli import invoke
from semifl.cli.display import outcome
from semifl.configuration.config import decode
from semifl.intervals import metric_intervals, paired_differences, wilson
from semifl.records.metrics import METRICS, of_the_kept
from semifl.records.predictions import read_predictions
from semifl.records.verdict import baseline, comparison, labels_only
from semifl.report.page import page
from semifl.running.loop import resume, start
from semifl.trained.prediction import find_model
from toys import toy_table, two_kinds_table

Output = pytest.CaptureFixture[str]


def with_plain(**keys: object) -> dict:
    """Two classes and a method whose labels-only models are two."""
    epochs = {"server_epochs": 1, "client_epochs": 1}
    method = {"name": "balanced", "warmup_steps": 3, "server_steps": 4, "lr": 0.05, **epochs}
    data = {"name": "toys:TwoKinds", "labeled": 24, "clients": 3}
    return {**two_kinds_table(), "rounds": 2, "data": data, "method": method, **keys}


def test_intervals_and_difference_are_of_the_predictions_that_are_kept(tmp_path: Path) -> None:
    result = start(decode(with_plain()), tmp_path / "run")
    found = read_predictions(tmp_path / "run/predictions.npz")
    assert sorted(found.models) == ["labels_only", "model", "plain_labels_only"]
    assert result["test_examples"] == len(found.labels) == 40
    assert result["evidence"] == "measured"
    for prefix, name in (("", "model"), ("labels_only_", "labels_only"), ("plain_labels_only_", "plain_labels_only")):
        shares = found.models[name]
        assert result[f"{prefix}accuracy"] == pytest.approx(100 * np.mean(shares.argmax(axis=1) == found.labels))
        for metric, ends in metric_intervals(shares, found.labels).items():
            assert result["intervals"][f"{prefix}{metric}"] == pytest.approx(list(ends), abs=1e-5)
        ill = shares[found.labels == 1][:, 1] >= 0.5
        assert result["intervals"][f"{prefix}sensitivity"] == pytest.approx(list(wilson(ill.sum(), len(ill))))
    best = max(("labels_only", "plain_labels_only"), key=lambda name: result[f"{name}_accuracy"])
    assert baseline(result) == f"{best}_"
    assert labels_only(result, "auc") == result[f"{best}_auc"]
    gaps = paired_differences(found.models["model"], found.models[best], found.labels)
    for metric in METRICS:
        assert result["difference"][metric] == pytest.approx(list(gaps[metric]), abs=1e-5)
        gap = result[metric] - result[f"{best}_{metric}"]
        assert result["difference"][metric][0] == pytest.approx(gap, abs=1e-5)


def test_predictions_are_of_the_kept_model_also_when_a_run_goes_on(tmp_path: Path) -> None:
    """The best on held-out labels may be that of an earlier round: the file has its answers, after a resume, too."""
    start(decode(two_kinds_table(rounds=3)), tmp_path / "run")
    for result in (resume(tmp_path / "run"), resume(tmp_path / "run", rounds=5)):
        found = read_predictions(tmp_path / "run/predictions.npz")
        prefix = of_the_kept(result)
        accuracy = 100 * np.mean(found.models["model"].argmax(axis=1) == found.labels)
        assert prefix == "best_"
        assert result["best_accuracy"] == pytest.approx(accuracy)
        low, high = result["intervals"]["best_accuracy"]
        assert low < accuracy < high
        assert find_model(tmp_path / "run", "cpu").about["faults"] == result["faults"]


def test_a_run_that_is_killed_at_its_end_says_the_same_after_a_resume(tmp_path: Path) -> None:
    whole = start(decode(two_kinds_table(rounds=3)), tmp_path / "run")
    before = (tmp_path / "run/predictions.npz").read_bytes()
    for name in ("result.json", "predictions.npz", "confusion.json"):
        (tmp_path / "run" / name).unlink()
    again = resume(tmp_path / "run")
    assert (tmp_path / "run/predictions.npz").read_bytes() == before
    kept = ("intervals", "difference", "faults", "best_accuracy", "accuracy")
    assert {name: again[name] for name in kept} == {name: whole[name] for name in kept}


def test_the_same_sentence_stands_first_everywhere(tmp_path: Path) -> None:
    result = start(decode(with_plain()), tmp_path / "run")
    first = outcome(result)[0]
    assert first == (result["faults"][0]["sentence"] if result["faults"] else comparison(result))
    assert f"**{first}**" in (tmp_path / "run/model.md").read_text()
    text = page([tmp_path / "run"])
    assert text.index(first) < text.index('<dl class="tiles">')
    assert 'id="parts"' in text  # what the labels' use is and what the clients', behind a fold


def test_predict_export_and_evaluate_repeat_a_fault_on_stderr(tmp_path: Path, capsys: Output) -> None:
    """A learning rate of next to nothing leaves a model that says one class."""
    table = toy_table(lr=1e-9, server_epochs=1)
    result = start(decode({**table, "rounds": 1}), tmp_path / "run")
    assert [fault["name"] for fault in result["faults"]] in (["one class"], ["class never predicted"])
    sentence = result["faults"][0]["sentence"]
    assert outcome(result)[0] == sentence
    assert sentence in (tmp_path / "run/model.md").read_text()
    Image.new("RGB", (8, 8), (200, 20, 20)).save(tmp_path / "red.png")
    capsys.readouterr()
    for line in (["predict", str(tmp_path / "run"), str(tmp_path / "red.png")],
                 ["predict", str(tmp_path / "run/model.safetensors"), str(tmp_path / "red.png"), "--csv"],
                 ["export", str(tmp_path / "run"), "--to", "safetensors", "-o", str(tmp_path / "copy.safetensors")],
                 ["evaluate", str(tmp_path / "run")]):  # fmt: skip
        assert invoke(line) == 0
        told = capsys.readouterr()
        assert told.err.startswith(f"warning: {sentence}")
        assert sentence not in told.out


def test_python_tells_it_too(tmp_path: Path) -> None:
    summary = start(decode(with_plain()), tmp_path / "run")
    found = api_result.Result(tmp_path / "run", None, summary, [])  # type: ignore[arg-type]
    assert repr(found).startswith(f"Result({outcome(summary)[0].rstrip('.')}")
    assert found.intervals["accuracy"] == tuple(summary["intervals"]["accuracy"])
    assert found.labels_only_accuracy == labels_only(summary, "accuracy")
    assert found.difference
    assert list(found.difference) == summary["difference"]["accuracy"]


def test_the_final_model_is_no_round(tmp_path: Path) -> None:
    result = start(decode({**toy_table(), "rounds": 2, "labels_only": False}), tmp_path / "run")
    rounds = [json.loads(line) for line in (tmp_path / "run/rounds.jsonl").read_text().splitlines()]
    best = max([*rounds, result], key=lambda each: each["accuracy"])
    assert result["best_round"] == best.get("round", "final")
    assert result["best_accuracy"] == best["accuracy"]

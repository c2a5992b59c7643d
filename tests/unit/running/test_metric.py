"""The metric that decides: the best round, patience, the guard; and what is measured of every model."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

from semifl.configuration.build import build_world
from semifl.configuration.config import decode
from semifl.errors import UserError
from semifl.running.loop import start
from semifl.trained.assessment import assess
from semifl.trained.prediction import find_model, logits_of
from toys import toy_table, two_kinds_table


def records(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]


def shares_of(run: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    """What the kept model makes of test or held-out pictures: the probability of the second class, and the truth."""
    world, model = build_world(decode(two_kinds_table())), find_model(run, "cpu")
    held = world.division.validation
    images, labels = (
        (world.data.test_images, world.data.test_labels)
        if part == "test"
        else (world.data.images[held], world.data.labels[held])
    )
    return logits_of(model, images).double().softmax(1)[:, 1].numpy(), labels.numpy()


@pytest.mark.parametrize("metric", ["accuracy", "balanced_accuracy", "auc", "f1"])
def test_the_best_round_is_the_best_by_the_metric_on_held_out_labels(tmp_path: Path, metric: str) -> None:
    result = start(decode(two_kinds_table(metric=metric, rounds=5)), tmp_path / "run")
    lines = records(tmp_path / "run")
    with safe_open(tmp_path / "run/model.safetensors", "pt") as file:
        kept = json.loads(file.metadata()["semifl"])
    key = f"validation_{metric}"
    best = max(reversed(lines), key=lambda record: record[key])  # the latest of those alike
    assert result["metric"] == metric
    assert kept["metric"] == metric
    if result["best_round"] != "final":  # else the final model is better than all of them
        assert result["best_round"] == kept["round"] == best["round"]
        assert result[f"best_{metric}"] == best[metric] == kept[metric]


def test_numbers_of_two_classes_agree_with_numpy(tmp_path: Path) -> None:
    table = two_kinds_table(guard=True)  # then the kept model is the final one
    result = start(decode(table), tmp_path / "run")
    share, truth = shares_of(tmp_path / "run", "test")
    pairs = [(a > b) + 0.5 * (a == b) for a in share[truth == 1] for b in share[truth == 0]]
    assert result["auc"] == pytest.approx(100 * np.mean(pairs))
    said = share >= 0.5
    per_class = [(said[truth == label] == label).mean() for label in (0, 1)]
    assert result["balanced_accuracy"] == pytest.approx(100 * np.mean(per_class))
    f1 = [2 * np.sum((said == c) & (truth == c)) / (np.sum(said == c) + np.sum(truth == c)) for c in (0, 1)]
    assert result["f1"] == pytest.approx(100 * np.mean(f1))
    at = result["decision_threshold"]
    assert result["sensitivity"] == pytest.approx(100 * (share[truth == 1] >= at).mean())
    assert result["specificity"] == pytest.approx(100 * (share[truth == 0] < at).mean())
    assert {f"labels_only_{name}" for name in ("auc", "f1", "sensitivity", "balanced_accuracy")} <= result.keys()


def test_the_matrix_is_that_of_evaluate(tmp_path: Path) -> None:
    """At the threshold that labels held out have chosen, which is stored with the model."""
    result = start(decode(two_kinds_table(seed=4, labels_only=False)), tmp_path / "run")
    assert result["best_round"] == "final"  # the final model was kept, and so is in the file
    detail = json.loads((tmp_path / "run/confusion.json").read_text())
    share, truth = shares_of(tmp_path / "run", "test")
    at = find_model(tmp_path / "run", "cpu").about["decision_threshold"]
    assert at != 0.5  # else nothing is shown here
    # rows: what a picture is; columns: what it is taken for
    counts = [[int(np.sum((truth == i) & ((share >= at) == j))) for j in (0, 1)] for i in (0, 1)]
    assert (detail["counts"], detail["threshold"]) == (counts, at)


def test_the_threshold_is_the_best_on_held_out_labels_and_goes_with_the_model(tmp_path: Path) -> None:
    start(decode(two_kinds_table()), tmp_path / "run")
    share, truth = shares_of(tmp_path / "run", "validation")

    def youden(threshold: float) -> float:
        return float((share[truth == 1] >= threshold).mean() + (share[truth == 0] < threshold).mean())

    model = find_model(tmp_path / "run", "cpu")
    chosen = model.about["decision_threshold"]
    assert youden(chosen) == pytest.approx(max(youden(at) for at in np.linspace(0, 1, 2001)))
    world = build_world(decode(two_kinds_table()))
    found = assess(model, world.data.test_images, world.data.test_labels)
    assert found.decision is not None
    assert found.decision.threshold == chosen
    assert found.positive == "ill"
    assert assess(model, world.data.test_images, world.data.test_labels, 0.0).decision == (0.0, 100.0, 0.0)


def test_without_held_out_labels_the_threshold_is_even(tmp_path: Path) -> None:
    table = two_kinds_table()
    table["data"] = {**table["data"], "validation": 0.0}
    result = start(decode({**table, "rounds": 1, "positive": "healthy"}), tmp_path / "run")
    assert result["decision_threshold"] == 0.5
    # With the other class as the finding, the two change places.
    again = start(decode({**table, "rounds": 1}), tmp_path / "again")
    assert (result["sensitivity"], result["specificity"]) == pytest.approx((again["specificity"], again["sensitivity"]))


def test_three_classes_have_no_sensitivity(tmp_path: Path) -> None:
    result = start(decode({**toy_table(), "rounds": 1}), tmp_path / "run")
    assert "sensitivity" not in result
    assert 0 <= result["auc"] <= 100


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"metric": "aucc"}, "metric = 'aucc' is not right"),
        ({"positive": "il"}, "positive = 'il' is not one of healthy, ill; did you mean 'ill'?"),
    ],
)
def test_mistakes_are_one_sentence(keys: dict, said: str) -> None:
    with pytest.raises(UserError) as error:
        build_world(decode(two_kinds_table(**keys)))
    assert said in str(error.value)


def test_a_positive_class_is_for_two() -> None:
    with pytest.raises(UserError, match="is for two classes, and there are 3"):
        build_world(decode({**toy_table(), "positive": "red"}))


def test_patience_goes_by_the_metric(tmp_path: Path) -> None:
    start(decode(two_kinds_table(metric="auc", rounds=30, stop={"patience": 2}, labels_only=False)), tmp_path / "run")
    lines = [record["validation_auc"] for record in records(tmp_path / "run")]
    if len(lines) < 30:
        assert lines.index(max(lines)) == len(lines) - 3


def test_a_run_of_an_earlier_version_is_the_same_run(tmp_path: Path) -> None:
    from semifl.running.loop import RunDirectory, changes

    config = decode(toy_table())
    start(decode({**toy_table(), "rounds": 1}), tmp_path / "run")
    path = tmp_path / "run/config.toml"
    path.write_text("".join(line for line in path.read_text().splitlines(True) if not line.startswith("metric")))
    world = build_world(config)
    assert changes(RunDirectory(tmp_path / "run"), world.config) == ["rounds was 1 and is now 3"]


def test_the_guard_goes_by_the_metric(tmp_path: Path) -> None:
    result = start(decode(two_kinds_table(metric="auc", guard=True)), tmp_path / "run")
    assert result["guard"]["kept"]
    assert torch.isfinite(torch.tensor(result["auc"]))

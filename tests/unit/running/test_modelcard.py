"""The card says what the file beside it is."""

import json
from pathlib import Path

from safetensors import safe_open

from semifl.configuration.config import decode
from semifl.running.loop import start
from toys import toy_table


def card_of(run: Path) -> str:
    return (run / "model.md").read_text(encoding="utf-8")


def kept(run: Path) -> dict:
    with safe_open(run / "model.safetensors", "pt") as file:
        return json.loads(file.metadata()["semifl"])


def test_the_card_of_a_run(tmp_path: Path) -> None:
    result = start(decode(toy_table()), tmp_path / "run")
    card = card_of(tmp_path / "run")
    assert "red, green, blue" in card
    assert "6 at the server; by class 2, 2, 2" in card
    assert "40 at 4 clients" in card
    for name, word in {"accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "auc": "AUC"}.items():
        (low, high), (less, more) = (result["intervals"][key] for key in (name, f"labels_only_{name}"))
        alone = f"labels alone {result[f'labels_only_{name}']:.1f} % [{less:.1f}, {more:.1f}]"
        assert f"| {word} | {result[name]:.1f} % [{low:.1f}, {high:.1f}]; {alone} |" in card
    assert "positive" not in card  # there are three classes
    assert "made by itself" in card


def test_with_held_out_labels_the_card_is_that_of_the_model_that_was_kept(tmp_path: Path) -> None:
    table = toy_table()
    table["data"] = {**table["data"], "labeled": 12, "validation": 0.25}
    start(decode({**table, "rounds": 4}), tmp_path / "run")
    about, card = kept(tmp_path / "run"), card_of(tmp_path / "run")
    which = f"round {about['round']}" if about["round"] <= 4 else "the final model"
    assert f"| the model | {which}, the best on held-out labels by accuracy |" in card
    assert f"| accuracy | {about['accuracy']:.1f} % [" in card


def test_a_method_with_the_clients_labels_made_none_itself(tmp_path: Path) -> None:
    table = toy_table()
    table["method"] = {"name": "fedavg", "activity_rate": 0.5}
    start(decode({**table, "rounds": 1}), tmp_path / "run")
    assert "made by itself" not in card_of(tmp_path / "run")

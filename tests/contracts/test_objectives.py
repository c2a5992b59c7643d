"""What every objective promises, whichever files are in the folder."""

import dataclasses
import json
import re
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import semifl.objectives
from semifl import registry, toml
from semifl.configuration.config import decode
from semifl.data.epochs import LabeledBatch, PairedBatch, UnlabeledBatch
from semifl.errors import UserError
from semifl.learning import trees
from semifl.learning.network import Network
from semifl.objectives import OBJECTIVES
from semifl.running.context import Silent
from semifl.running.loop import resume, start
from toys import toy_model, toy_table

every_objective = pytest.mark.parametrize("name", registry.names(OBJECTIVES))


def table(name: str, seed: int = 0, **method: object) -> dict:
    centralized = {"name": "centralized", "batch": 4, "objective": {"name": name}, **method}
    return {**toy_table(), "method": centralized, "rounds": 2, "seed": seed, "labels_only": False}


def outcome(directory: Path) -> tuple[bytes, list[dict]]:
    records = [json.loads(line) for line in (directory / "rounds.jsonl").read_text().splitlines()]
    return (directory / "model.safetensors").read_bytes(), [{**record, "seconds": None} for record in records]


class Cut(Silent):
    def round(self, record, best) -> None:
        raise KeyboardInterrupt


@every_objective
def test_is_a_frozen_dataclass_with_views_and_a_ratio(name: str) -> None:
    cls = registry.find(OBJECTIVES, name, "method.objective.name")
    assert dataclasses.is_dataclass(cls)
    assert cls.__dataclass_params__.frozen
    assert set(cls().views) <= {"weak", "strong"}
    assert cls().ratio >= bool(cls().views)


@every_objective
def test_is_a_function_of_its_seed(name: str, tmp_path: Path) -> None:
    for run, seed in (("a", 0), ("b", 0), ("c", 1)):
        start(decode(table(name, seed)), tmp_path / run)
    assert outcome(tmp_path / "a") == outcome(tmp_path / "b")
    assert outcome(tmp_path / "a")[0] != outcome(tmp_path / "c")[0]


@every_objective
@pytest.mark.parametrize("ema", [0.0, 0.5])
def test_resumes_exactly(name: str, ema: float, tmp_path: Path) -> None:
    start(decode(table(name, ema=ema)), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        start(decode(table(name, ema=ema)), tmp_path / "cut", observer=Cut())
    resume(tmp_path / "cut")
    assert outcome(tmp_path / "cut") == outcome(tmp_path / "whole")


@every_objective
def test_survives_toml(name: str) -> None:
    config = decode(table(name))
    assert decode({**table(name), **config.table()}).method == config.method
    assert toml.dumps(decode(config.table()).table()) == toml.dumps(config.table())
    assert config.table()["method"]["objective"]["name"] == name


@every_objective
def test_runs_where_nobody_has_unlabeled_pictures(name: str, tmp_path: Path) -> None:
    result = start(decode({**table(name), "labels_only": True}), tmp_path / "run")
    assert 0 <= result["labels_only_accuracy"] <= 100


@every_objective
def test_without_unlabeled_pictures_it_is_cross_entropy(name: str) -> None:
    objective = registry.find(OBJECTIVES, name, "method.objective.name")()
    network = Network(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)))
    images, labels = torch.randn(4, 3, 2, 2), torch.tensor([0, 1, 2, 0])
    nothing = UnlabeledBatch(tuple(torch.empty(0) for _ in objective.views), torch.arange(0))
    memory = objective.start(network.weights(), 3)

    loss = objective.loss(network, PairedBatch(LabeledBatch(images, labels), nothing), memory, 0.5)["loss"]
    loss.backward()
    objective.after_step(network, memory)

    torch.testing.assert_close(loss, F.cross_entropy(network(images), labels))


@every_objective
def test_what_it_remembers_can_be_written_down_and_does_not_change_shape(name: str) -> None:
    objective = registry.find(OBJECTIVES, name, "method.objective.name")()
    torch.manual_seed(0)
    network = Network(toy_model(3, 3))
    weights = network.weights()
    memory = objective.start(weights, 3)
    shapes = []
    for _ in range(2):
        views = tuple(torch.randn(6, 3, 8, 8) for _ in objective.views)
        known = LabeledBatch(torch.randn(4, 3, 8, 8), torch.tensor([0, 1, 2, 0]))
        terms = objective.loss(network, PairedBatch(known, UnlabeledBatch(views, torch.arange(6))), memory, 0.5)
        terms["loss"].backward()
        objective.after_step(network, memory)
        shapes.append({key: tensor.shape for key, tensor in memory.items()})

    trees.flatten(memory, [])
    assert shapes[0] == shapes[1]
    assert not any(tensor.requires_grad or tensor.grad is not None for tensor in memory.values())
    assert all(term.dim() == 0 and bool(term.isfinite()) for term in terms.values())
    assert objective.result(weights, memory).keys() == weights.keys()


@every_objective
def test_has_a_page_that_explains_every_field_with_its_default(name: str) -> None:
    page = (Path(__file__).parents[2] / f"docs/methods/{name}.md").read_text(encoding="utf-8")
    defaults = {field: default.strip("`") for field, default in re.findall(r"^\| `(\w+)` \| ([^|]+) \|", page, re.M)}
    cls = registry.find(OBJECTIVES, name, "method.objective.name")
    assert defaults == {field.name: json.dumps(field.default) for field in dataclasses.fields(cls)}


ONE_FILE = """
from dataclasses import dataclass
from typing import ClassVar

from semifl.objectives import Objective


@dataclass(frozen=True)
class Entropy(Objective):
    views: ClassVar[tuple[str, ...]] = ("weak",)
    ratio: int = 2

    def loss(self, network, batch, memory, progress):
        logits = network(batch.unlabeled.views[0])
        return {"loss": -(logits.softmax(1) * logits.log_softmax(1)).sum(1).mean()}
"""


def test_one_file_is_all_that_a_new_objective_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "objectives").mkdir()
    (tmp_path / "objectives/entropy.py").write_text(ONE_FILE)
    monkeypatch.setattr(semifl.objectives, "__path__", [*semifl.objectives.__path__, str(tmp_path / "objectives")])

    assert "entropy" in registry.names(OBJECTIVES)
    config = decode(table("entropy"))
    start(config, tmp_path / "run")

    assert config.table()["method"]["objective"] == {"name": "entropy", "ratio": 2}
    assert len(outcome(tmp_path / "run")[1]) == 2


@pytest.mark.parametrize(
    ("name", "key", "value", "message"),
    [
        ("fixmatch", "threshold", 1.5, "method.objective.threshold must lie between 0 and 1, not 1.5"),
        ("fixmatch", "ratio", 0, "method.objective.ratio must be at least 1, not 0"),
        ("mixmatch", "temperature", 0.0, "method.objective.temperature must be above 0, not 0.0"),
        ("mixmatch", "unlabeled_weight", -1.0, "method.objective.unlabeled_weight must not be negative, but is -1.0"),
        ("uda", "annealing", "cosine", "method.objective.annealing = 'cosine' is not right"),
        ("uda", "tresh", 0.5, "unknown key method.objective.tresh"),
    ],
)
def test_a_wrong_field_is_one_sentence(name: str, key: str, value: object, message: str) -> None:
    wrong = table(name)
    wrong["method"]["objective"][key] = value
    with pytest.raises(UserError) as error:
        decode(wrong)
    assert message in str(error.value)

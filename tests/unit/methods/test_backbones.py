"""Every method runs on networks without BatchNorm, with frozen BatchNorm, and on frozen features."""

import json

import pytest

import backbones
from semifl import registry
from semifl.configuration.config import METHODS, decode
from semifl.running.loop import start
from toys import toy_table

NAMES = [
    name for name in registry.names(METHODS) if name != "heterofl"
]  # which cuts networks, and a backbone has no parts
SMALL = {"client_epochs": 1, "server_epochs": 1, "server_batch": 4, "threshold": 0.2}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("backbones")
    return {kind: getattr(backbones, kind)(folder / kind) for kind in ("lite", "vit", "resnet")}


def table(name, model):
    made = toy_table()
    known = decode({"method": {"name": name}}).table()["method"]
    method = {"name": name, "lr": 0.01, **{key: value for key, value in SMALL.items() if key in known}}
    if "optimizer" in known and name != "fedsgd_fixmatch":
        method |= {"optimizer": "adamw", "backbone_lr": 0.5, "warmup_rounds": 2}
    if "activity_rate" in known:
        method["activity_rate"] = 0.5
    return {**made, "rounds": 2, "labels_only": False, "model": {"name": "pretrained", **model}, "method": method}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("kind", "model"),
    [
        ("vit", {"train": "lora", "rank": 2, "targets": ["q_proj", "v_proj"]}),
        ("resnet", {"train": "norms", "size": 16}),
        ("lite", {"views": 2, "size": 32}),
    ],
    ids=["no BatchNorm", "frozen BatchNorm", "frozen features"],
)
def test_it_runs_and_no_statistics_travel(name, kind, model, folders, tmp_path):
    result = start(decode(table(name, {"source": str(folders[kind]), **model})), tmp_path / "run")
    assert 0 <= result["accuracy"] <= 100
    records = [json.loads(line) for line in (tmp_path / "run/rounds.jsonl").read_text().splitlines()]
    assert len(records) == 2
    assert len({record["digest"] for record in records}) == 2  # it learns

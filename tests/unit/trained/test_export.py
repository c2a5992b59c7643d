"""Exported models give the same probabilities, by programs that know nothing of semifl."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from semifl.cli import invoke
from semifl.configuration.config import decode
from semifl.running.loop import start
from semifl.trained import export as export_file
from semifl.trained.prediction import find_model


@pytest.fixture(scope="module", params=["batch", "group"])
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("export") / "run"
    table = {
        "rounds": 1,
        "labels_only": False,
        "data": {"name": "toys:ToyData", "labeled": 6, "clients": 4},
        "model": {"name": "wide_resnet", "depth": 10, "width": 1, "norm": request.param},
        "method": {"name": "semifl", "server_epochs": 1, "client_epochs": 1},
    }
    start(decode(table), directory)
    return directory


def test_the_example_says_what_predict_says(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    rng, paths = np.random.default_rng(1), []
    for number, shape in enumerate([(8, 8, 3), (20, 12, 3), (9, 30, 3)]):
        paths.append(str(tmp_path / f"{number}.png"))
        Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).save(paths[-1])
    assert invoke(["export", str(run), "--out", str(tmp_path / "model.onnx")]) == 0
    capsys.readouterr()
    assert invoke(["predict", str(run), *paths, "--json", "--probabilities"]) == 0
    ours = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    example = Path(__file__).parents[3] / "examples/onnx/predict.py"
    words = [sys.executable, str(example), str(tmp_path / "model.onnx"), *paths]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    for line, answer in zip(done.stdout.splitlines(), ours, strict=True):
        path, said, shares = line.split("\t")
        assert (path, said) == (answer["path"], answer["class"])
        for name, share in json.loads(shares).items():
            assert share == pytest.approx(answer[f"probability_{name}"], abs=1e-3)


def expected(run: Path, pictures: np.ndarray) -> np.ndarray:
    """Normalised by hand, through the module as it was trained."""
    model = find_model(run, "cpu")
    mean, std = (np.array(each, dtype=np.float32)[:, None, None] for each in (model.facts.mean, model.facts.std))
    normal = torch.from_numpy((pictures / np.float32(255) - mean) / std)
    with torch.inference_mode():
        logits = model.network.module.eval()(normal).double().numpy()
    e = np.exp(logits - logits.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


PICTURES = np.random.default_rng(0).integers(0, 256, (7, 3, 8, 8)).astype(np.uint8)


def test_onnx_in_onnxruntime(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    path = tmp_path / "m.onnx"
    assert invoke(["export", str(run), "--to", "onnx", "-o", str(path)]) == 0
    assert "uint8 [n, 3, 8, 8]" in capsys.readouterr().out
    session = onnxruntime.InferenceSession(str(path))
    (found,) = session.run(None, {"pictures": PICTURES})
    np.testing.assert_allclose(found, expected(run, PICTURES), atol=1e-4)
    about = json.loads(session.get_modelmeta().custom_metadata_map["semifl"])
    assert about == {"classes": ["red", "green", "blue"], "size": 8, "channels": 3}
    assert [each.name for each in tmp_path.iterdir()] == ["m.onnx"]  # one file, nothing beside it


def test_torchscript(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    assert invoke(["export", str(run), "--to", "torchscript", "-o", str(path)]) == 0
    extra = {"semifl.json": ""}
    loaded = torch.jit.load(str(path), _extra_files=extra)
    found = loaded(torch.from_numpy(PICTURES)).detach().numpy()
    np.testing.assert_allclose(found, expected(run, PICTURES), atol=1e-5)
    assert json.loads(extra["semifl.json"])["classes"] == ["red", "green", "blue"]


def test_safetensors_is_the_whole_model(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.safetensors"
    assert invoke(["export", str(run), "--to", "safetensors", "-o", str(path)]) == 0
    assert path.read_bytes() == (run / "model.safetensors").read_bytes()
    assert find_model(path, "cpu").facts.class_names == ("red", "green", "blue")
    assert invoke(["export", str(run), "--to", "safetensors"]) == 0
    assert "already" in capsys.readouterr().out


def test_a_file_that_differs_is_not_written(run: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    honest = export_file._run_torchscript
    monkeypatch.setattr(export_file, "_run_torchscript", lambda *given: honest(*given) + 0.01)
    assert invoke(["export", str(run), "--to", "torchscript", "-o", str(tmp_path / "m.pt")]) == 2
    assert "differs from the original" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_mistakes_are_one_sentence(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["export", str(tmp_path)]) == 2
    assert "holds no model.safetensors" in capsys.readouterr().err
    assert invoke(["export", str(run), "--to", "keras"]) == 2

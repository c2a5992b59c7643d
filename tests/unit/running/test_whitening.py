"""A stem through a run: whose pictures it is made of, and that it is the same before, during and after."""

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import load_file, save_file

from semifl.configuration.build import build_world
from semifl.configuration.config import decode
from semifl.data.dataset import Dataset
from semifl.errors import UserError
from semifl.learning.weights import digest
from semifl.learning.whitening import whitening_rows
from semifl.records.record import RoundRecord
from semifl.running.context import Silent
from semifl.running.loop import resume, start
from semifl.trained.export import export
from semifl.trained.modelfile import load_model
from toys import ToyData, toy_table

MODEL = {"name": "fast_cnn", "widths": [4, 6, 6]}


def table(**method: object) -> dict:
    return {**toy_table(**method), "labels_only": False, "model": dict(MODEL)}


def stem_of(run: Path) -> torch.Tensor:
    return load_file(run / "model.safetensors")["0.whitening"].flatten(1)


@dataclass(frozen=True)
class OtherClients(ToyData):
    """The toy pictures, but everybody except the server has black ones."""

    keep: tuple[int, ...] = ()

    def load(self) -> Dataset:
        data = super().load()
        images = torch.zeros_like(data.images)
        images[list(self.keep)] = data.images[list(self.keep)]
        return replace(data, images=images)


def test_it_is_made_of_the_servers_pictures_alone() -> None:
    world = build_world(decode(table()))
    server = world.division.server
    data = {**table()["data"], "name": f"{__name__}:OtherClients", "keep": server.tolist()}
    black = build_world(decode({**table(), "data": data}))

    assert torch.equal(black.division.server, server)
    assert world.data.facts.whitening == whitening_rows(world.data.images[server], world.data.facts.std)
    assert black.data.facts.whitening == world.data.facts.whitening


def test_held_out_pictures_are_no_part_of_it() -> None:
    config = table()
    config["data"] |= {"labeled": 12, "validation": 0.5}
    world = build_world(decode(config))

    assert len(world.division.server) == 6
    assert world.data.facts.whitening == whitening_rows(world.data.images[world.division.server], (0.3,) * 3)


def test_a_model_that_does_not_ask_gets_none() -> None:
    assert build_world(decode(toy_table())).data.facts.whitening is None
    assert build_world(decode({**toy_table(), "model": {"name": "cnn"}})).data.facts.whitening is None


@pytest.mark.parametrize("method", [{}, {"name": "fedmatch"}, {"name": "heterofl"}, {"name": "centralized"}], ids=str)
def test_the_saved_model_has_the_stem_that_it_began_with(method: dict, tmp_path: Path) -> None:
    config = {**table(), "rounds": 1}
    if method:
        config["method"] = {**method, **({"widths": [0.5, 1.0]} if method["name"] == "heterofl" else {})}
    start(decode(config), tmp_path / "run")

    assert torch.equal(stem_of(tmp_path / "run"), torch.tensor(build_world(decode(config)).data.facts.whitening))


def test_messages_do_not_carry_it(tmp_path: Path) -> None:
    start(decode({**table(), "rounds": 1}), tmp_path / "run")

    (record,) = [json.loads(line) for line in (tmp_path / "run/rounds.jsonl").read_text().splitlines()]
    tensors = load_file(tmp_path / "run/model.safetensors")
    learned = [name for name in tensors if "running" not in name and "num_batches" not in name]
    trained = sum(tensors[name].numel() for name in learned if name != "0.whitening")
    assert record["bytes_up"] == 4 * trained * len(record["cohort"])


def test_a_run_resumes_exactly(tmp_path: Path) -> None:
    class Stop(Silent):
        def round(self, record: RoundRecord, best: float) -> None:
            raise KeyboardInterrupt

    start(decode(table()), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        start(decode(table()), tmp_path / "parts", observer=Stop())
    resume(tmp_path / "parts")

    models = [load_file(tmp_path / name / "model.safetensors") for name in ("whole", "parts")]
    assert digest(models[0]) == digest(models[1])


def test_a_run_does_not_go_on_behind_another_stem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start(decode({**table(), "rounds": 1}), tmp_path / "run")
    (tmp_path / "run/result.json").unlink()
    load = ToyData.load
    monkeypatch.setattr(ToyData, "load", lambda self: replace(load(self), images=255 - load(self).images // 2))

    with pytest.raises(UserError, match=r"the model's whitening was '[0-9a-f]{16}' and is now"):
        resume(tmp_path / "run", rounds=2)


def test_a_warm_start_brings_its_own_stem(tmp_path: Path) -> None:
    start(decode({**table(), "rounds": 1}), tmp_path / "first")
    file = tmp_path / "first/model.safetensors"
    tensors = load_file(file)
    tensors["0.whitening"] *= 2
    save_file(tensors, tmp_path / "weights.safetensors")
    config = {**table(), "rounds": 1, "model": {**MODEL, "weights": str(tmp_path / "weights.safetensors")}}
    world = build_world(decode(config))

    assert torch.equal(torch.tensor(world.data.facts.whitening), tensors["0.whitening"].flatten(1))
    narrow = world.model_factory()(width=0.5)  # which is never loaded from the file
    assert torch.equal(narrow.state_dict()["0.whitening"], tensors["0.whitening"])


def test_a_saved_model_predicts_as_it_was_trained_and_exports(tmp_path: Path) -> None:
    start(decode({**table(), "rounds": 1}), tmp_path / "run")
    file = tmp_path / "run/model.safetensors"
    model = load_model(file)
    pictures = torch.randint(0, 256, (5, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        expected = model.network((pictures / 255 - 0.4) / 0.3).softmax(dim=1)

    written = load_file(file)
    assert all(torch.equal(tensor, written[name]) for name, tensor in model.network.module.state_dict().items())
    assert export(model, file, "onnx", tmp_path / "model.onnx") < 1e-4
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (found,) = session.run(None, {"pictures": pictures.numpy()})
    np.testing.assert_allclose(found, expected.numpy(), atol=1e-5)
    assert export(model, file, "torchscript", tmp_path / "model.pt") < 1e-4

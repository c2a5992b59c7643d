"""The Python interface: what goes in, what comes out, and that a run is the run of the command line."""

import dataclasses
import html
import json
import re
import sys
import tomllib
import types
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import semifl
from semifl import FederatedData, Health, Result, RunStopped, SemiFL, UserError, load, toml, train
from semifl.api.watching import in_notebook
from semifl.cli import invoke
from semifl.configuration.config import decode
from semifl.models.cnn import Cnn
from semifl.models.fast_cnn import FastCnn
from semifl.models.resnet import ResNet
from semifl.models.wide_resnet import WideResNet
from semifl.running.loop import start
from toys import COLOURS, TwoKinds, toy_model, toy_table

METHOD = SemiFL(activity_rate=1.0, threshold=0.3, client_epochs=1, server_epochs=2, server_batch=4)
QUICK = {"rounds": 2, "progress": False, "threads": 1, "labels_only": False, "device": "cpu"}
Output = pytest.CaptureFixture[str]


def paint(count: int, seed: int, shape: tuple[int, int] = (8, 8)) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.arange(count) % 3
    noise = torch.randint(-30, 31, (count, 3, *shape), generator=torch.Generator().manual_seed(seed))
    return (COLOURS[labels][:, :, None, None] + noise).clamp(0, 255).to(torch.uint8), labels


def toy_data(**options) -> FederatedData:
    clients = [paint(count, seed)[0] for seed, count in enumerate((9, 12, 15))]
    given = {"labeled": paint(12, 7), "clients": clients, "test": paint(18, 8), "class_names": ["red", "green", "blue"]}
    return FederatedData(**{**given, **options})


def network(bn: bool = True) -> nn.Module:
    torch.manual_seed(3)
    norm = nn.BatchNorm2d(6) if bn else nn.GroupNorm(2, 6)
    return nn.Sequential(nn.Conv2d(3, 6, 3), norm, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3))


def digests(directory: Path) -> list[str]:
    return [json.loads(line)["digest"] for line in (directory / "rounds.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    out = tmp_path_factory.mktemp("runs") / "first"
    return train(METHOD, model=network(), on=toy_data(), out=out, **{**QUICK, "labels_only": True})


# What goes in


def test_data_from_tensors_arrays_and_floats_are_the_same_data() -> None:
    clients = [paint(count, seed)[0] for seed, count in enumerate((9, 12, 15))]
    as_others = [clients[0], clients[1].permute(0, 2, 3, 1).numpy(), clients[2].float() / 255]
    first, second = toy_data(), toy_data(clients=as_others)
    assert first.source.thing.fingerprint == second.source.thing.fingerprint
    data = first.load()
    assert data.labels.tolist() == [0, 1, 2] * 4 + [-1] * 36
    assert data.site_of is not None
    assert [int((data.site_of == site).sum()) for site in (-1, 0, 1, 2)] == [12, 9, 12, 15]
    assert data.sites == ("client 0", "client 1", "client 2")
    assert "3 classes, 12 labeled, 3 clients with 36 pictures, 18 to test, 3 × 8 × 8" in repr(first)


def test_pictures_that_are_not_square_are_cropped_and_resized() -> None:
    wide = paint(9, 0, (8, 20))[0]
    data = toy_data(clients=[wide, paint(6, 1, (30, 30))[0]], size=8).load()
    assert data.facts.size == 8
    assert torch.equal(data.images[12:21], wide[:, :, :, 6:14])
    assert toy_data(size=5).load().images.shape[2:] == (5, 5)


def test_arrays_that_are_not_square_need_a_size() -> None:
    wide = paint(9, 0, (8, 20))[0]
    with pytest.raises(UserError, match=r"clients\[0\] is 8 × 20, not square: with size = 8 the middle"):
        toy_data(clients=[wide])
    with pytest.raises(UserError, match=r"labeled\[1\] is 8 × 20"):
        toy_data(labeled=([paint(1, 0)[0][0], wide[0]], [0, 1]))
    photographs = [Image.fromarray(picture.permute(1, 2, 0).numpy()) for picture in wide]
    assert toy_data(clients=[photographs]).load().images.shape[2:] == (8, 8)


def test_grey_stays_grey_and_joins_colour() -> None:
    grey = np.zeros((6, 8, 8), np.uint8)
    labels = [0, 1, 2] * 2
    assert toy_data(labeled=(grey, labels), clients=[grey], test=(grey, labels)).load().facts.channels == 1
    assert toy_data(labeled=(grey, labels)).load().images.shape[1] == 3


def test_a_share_of_the_labels_can_be_the_test() -> None:
    data = toy_data(test=0.25).load()
    assert data.labeled is not None
    assert (len(data.labeled), data.test_labels.tolist()) == (9, [0, 1, 2])
    together = torch.cat([data.images[:9], data.test_images])
    assert sorted(together.flatten(1).sum(1).tolist()) == sorted(paint(12, 7)[0].flatten(1).sum(1).tolist())


def test_hidden_labels_are_for_the_oracle(tmp_path: Path) -> None:
    hidden = [paint(count, 0)[1] for count in (9, 12)]
    data = toy_data(client_labels=[*hidden, None], client_names=["north", "south", "west"])
    result = train(METHOD, model=network(), on=data, out=tmp_path / "run", **QUICK)
    assert result.rounds[0]["pseudo_accuracy"] is not None
    assert data.load().sites == ("north", "south", "west")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"clients": []}, "clients is empty"),
        ({"clients": [[], paint(3, 0)[0]]}, r"^clients\[0\] holds no pictures$"),
        ({"labeled": ([], [])}, "^labeled holds no pictures$"),
        ({"test": ([], [])}, "^test holds no pictures$"),
        ({"size": -3}, "^size must lie between 2 and 1024, not -3$"),
        ({"size": 8.5}, r"^size must be a whole number of pixels, not 8\.5$"),
        ({"clients": [paint(3, 0)[0].float()]}, r"clients\[0\] holds floats from .* between 0 and 1 or as uint8"),
        ({"labeled": paint(12, 7)[0]}, r"labeled must be a pair \(pictures, labels\), not Tensor"),
        ({"labeled": (paint(12, 7)[0], [0, 1])}, "the labels of labeled must be one label for each of the 12"),
        ({"class_names": ["red", "green"]}, "there is a label 2, but class_names has only 2 entries"),
        ({"class_names": ["red", "red", "blue"]}, "class_names must differ"),
        ({"client_names": ["a"]}, "client_names has 1 entries for 3 clients"),
        ({"client_labels": [[0], None, None]}, r"client_labels\[0\] must be one label for each of the 9"),
        ({"test": 0.01}, "test = 0.01 leaves class 'red', which has 4 labels"),
        ({"test": 1.5}, "test = 1.5 is no share"),
        ({"labeled": (paint(2, 7)[0], np.array(["red", "green"]))}, "^the labels of labeled must .* ndarray of <U5$"),
        ({"labeled": (paint(2, 7)[0], ["red", "green"])}, "^the labels of labeled must .* not list of <U5$"),
        ({"clients": [None, paint(3, 0)[0]]}, r"^clients\[0\] must be a tensor or an array of numbers, not NoneType$"),
        ({"clients": 3}, "^clients must be a list with an entry for each, not int$"),
        ({"validation": "0.2"}, "^validation must be a number, not '0.2'$"),
    ],
)
def test_mistakes_in_data_are_one_sentence(options: dict, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        toy_data(**options)


def test_what_can_be_counted_only_once_is_the_same_data() -> None:
    clients = [paint(9, 0)[0], paint(12, 1)[0]]
    listed = toy_data(clients=clients, client_names=["a", "b"])
    once = toy_data(clients=iter(clients), client_names=iter("ab"), class_names=iter(["red", "green", "blue"]))
    assert once.source.thing.fingerprint == listed.source.thing.fingerprint


# The loop of the command line


def test_train_is_the_run_of_the_command_line(tmp_path: Path) -> None:
    """The same data, model and method by name give the same bits as a configuration, and a directory to resume."""
    table = toy_table()
    start(decode(table), tmp_path / "cli")
    data = FederatedData.from_name("toys:ToyData", labeled=6, clients=4)
    method = SemiFL(**table["method"])
    made = train(method, model=toy_model, on=data, rounds=3, threads=1, out=tmp_path / "api", progress=False)
    assert digests(tmp_path / "api") == digests(tmp_path / "cli")
    assert (tmp_path / "api/config.toml").read_text() == (tmp_path / "cli/config.toml").read_text()
    assert (tmp_path / "api/model.safetensors").read_bytes() == (tmp_path / "cli/model.safetensors").read_bytes()
    assert made.accuracy == json.loads((tmp_path / "cli/result.json").read_text())["accuracy"]
    (tmp_path / "api/result.json").unlink()
    assert invoke(["resume", str(tmp_path / "api"), "--workers", "1"]) == 0


def test_a_folder_goes_in_and_the_command_line_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path / "cache"))
    for part, groups in (("labeled", "ab"), ("clients", "cd"), ("test", "ab")):
        for group in groups:
            for number in range(3):
                path = tmp_path / "own" / part / group / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.new("RGB", (10, 9), (90 * number, 50, 200 * (group == "a"))).save(path)
    data = FederatedData.from_folder(tmp_path / "own", size=8)
    train(METHOD, model=Cnn(), on=data, out=tmp_path / "run", **QUICK)
    assert invoke(["evaluate", str(tmp_path / "run")]) == 0
    assert invoke(["predict", str(tmp_path / "run"), str(tmp_path / "own/clients")]) == 0


def test_the_number_of_workers_leaves_no_trace(tmp_path: Path, result: Result) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        again = train(METHOD, model=network(), on=toy_data(), out=tmp_path / "run", workers=2, **QUICK)
    assert digests(again.directory) == digests(result.directory)


def test_own_views_reach_clients_in_workers(tmp_path: Path) -> None:
    data = toy_data(weak="views_for_tests:darker", strong="views_for_tests:darker")
    runs = [
        train(METHOD, model=network(), on=each, out=tmp_path / str(number), workers=workers, **QUICK)
        for number, (each, workers) in enumerate([(data, 2), (data, 1), (toy_data(), 1)])
    ]
    assert digests(runs[0].directory) == digests(runs[1].directory)
    assert digests(runs[0].directory) != digests(runs[2].directory)
    assert 'weak_view = "views_for_tests:darker"' in (tmp_path / "0/config.toml").read_text()


# What cannot travel to workers


def test_what_cannot_travel_is_trained_by_one_worker_with_a_warning(tmp_path: Path) -> None:
    data = toy_data(weak=lambda images, generator: images, strong=lambda images, generator: 255 - images)
    assert (data.views.find("strong_view")(torch.zeros(1), torch.Generator()) == 255).all()
    with pytest.warns(UserWarning, match="one worker instead of 2"):
        train(METHOD, model=network(), on=data, out=tmp_path / "run", workers=2, **QUICK)
    assert 'weak_view = "python:<lambda>"' in (tmp_path / "run/config.toml").read_text()


# Going on


def test_the_same_things_go_on_where_a_run_was_left(tmp_path: Path, result: Result) -> None:
    def stop(record: dict) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(METHOD, model=network(), on=toy_data(), out=tmp_path / "run", on_round=stop, **QUICK)
    assert len(digests(tmp_path / "run")) == 1
    seen: list[int] = []
    train(
        METHOD,
        model=network(),
        on=toy_data(),
        out=tmp_path / "run",
        on_round=lambda r: seen.append(r["round"]),
        **QUICK,
    )
    assert seen == [2]
    assert digests(tmp_path / "run") == digests(result.directory)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"method": SemiFL(activity_rate=1.0)}, "method.client_epochs was 1 and is now 5"),
        ({"on": toy_data(test=paint(18, 9))}, "data.fingerprint was .* and is now"),
        ({"model": nn.Sequential(nn.Flatten(), nn.Linear(192, 3))}, "model.first_weights was .* and is now"),
        ({"rounds": 3}, "rounds was 2 and is now 3"),
        ({"seed": 1}, "seed was 0 and is now 1"),
        ({"resume": False}, "already holds a run: pass resume=True"),
    ],
)
def test_another_run_is_never_touched(change: dict, sentence: str, result: Result) -> None:
    before = (result.directory / "rounds.jsonl").read_bytes()
    same = {"method": METHOD, "model": network(), "on": toy_data(), "out": result.directory}
    with pytest.raises(UserError, match=sentence):
        train(**{**same, **QUICK, "labels_only": True, **change})
    assert (result.directory / "rounds.jsonl").read_bytes() == before


def test_without_a_directory_each_run_gets_a_free_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("runs/semifl-seed-0", "runs/semifl-seed-0-2"):
        assert train(METHOD, model=network(), on=toy_data(), **{**QUICK, "rounds": 1}).directory == Path(name)


# While it goes on


@pytest.mark.parametrize("way", ["false", "raise"])
def test_a_callback_ends_a_run_in_order(tmp_path: Path, way: str) -> None:
    def enough(record: dict) -> bool:
        if way == "raise" and record["round"] == 2:
            raise StopIteration
        return record["round"] < 2

    options = {**QUICK, "rounds": 9}
    result = train(METHOD, model=network(), on=toy_data(), out=tmp_path / "run", on_round=enough, **options)
    assert len(result.rounds) == result.summary["rounds"] == 2
    events = (tmp_path / "run/events.jsonl").read_text()
    assert '"stopped early", "after": 2' in events


def test_a_run_that_stops_says_how_to_go_on(tmp_path: Path) -> None:
    calls = []

    def tired(images: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        calls.append(len(images))
        if len(calls) > 1:
            raise ValueError("tired")
        return images

    with pytest.raises(
        RunStopped, match=r"client 0 failed in round 1: the strong view failed .*tired; .* call train with the same"
    ):
        train(METHOD, model=network(), on=toy_data(strong=tired), out=tmp_path / "run", **QUICK)


def test_a_notebook_gets_a_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []
    handle = types.SimpleNamespace(update=shown.append)
    display = types.ModuleType("IPython.display")
    display.HTML = str  # type: ignore[attr-defined]
    display.display = lambda text, display_id: shown.append(text) or handle  # type: ignore[attr-defined]
    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: types.SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    assert in_notebook()
    train(METHOD, model=network(), on=toy_data(), out=tmp_path / "run", **{**QUICK, "progress": True})
    assert "preparing" in shown[0]
    assert '<progress value="2" max="2"></progress> round 2/2 accuracy' in shown[-1]


# What comes out


def test_the_model_takes_pictures_as_they_are(result: Result) -> None:
    images, labels = paint(18, 8)
    assert not result.model.training
    with torch.no_grad():
        by_bytes, by_floats = result.model(images), result.model(images.float() / 255)
    torch.testing.assert_close(by_bytes, by_floats)
    right = float((by_bytes.argmax(1) == labels).float().mean())
    assert 100 * right == pytest.approx(result.accuracy)
    assert result.model.network[1].track_running_stats  # as its owner built it


def test_predict_takes_any_pictures(result: Result) -> None:
    images, _ = paint(18, 8)
    labels, confidences = result.predict(images)
    with torch.no_grad():
        expected = result.model(images).softmax(1).max(1)
    assert torch.equal(labels, expected.indices)
    torch.testing.assert_close(confidences, expected.values)
    large = [Image.new("RGB", (50, 40), tuple(colour)) for colour in COLOURS.tolist()]
    assert result.predict(large).labels.shape == (3,)
    assert result.class_names == ("red", "green", "blue")


def test_numbers_are_attributes_and_probabilities_are_those_of_the_model(result: Result) -> None:
    images, _ = paint(18, 8)
    with torch.no_grad():
        torch.testing.assert_close(result.probabilities(images), result.model(images).softmax(1))
    for name in ("accuracy", "balanced_accuracy", "auc", "f1", "calibration_error"):
        assert getattr(result, name) == result.summary[name]
        assert result.labels_only[name] == result.summary[f"labels_only_{name}"]
    assert result.sensitivity is None  # there are three classes
    assert result.labels_only_accuracy == result.labels_only["accuracy"]


@pytest.mark.parametrize("to", ["onnx", "torchscript"])
def test_a_module_of_a_notebook_can_be_exported(result: Result, tmp_path: Path, to: str) -> None:
    pytest.importorskip("onnxruntime")
    images, _ = paint(18, 8)
    before = {name: each.clone() for name, each in result.model.state_dict().items()}
    path = result.export(to, out=tmp_path / "model.out")
    if to == "onnx":
        import onnxruntime

        session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
        shares = torch.from_numpy(session.run(None, {"pictures": images.numpy()})[0])
    else:
        shares = torch.jit.load(str(path))(images)
    torch.testing.assert_close(shares, result.probabilities(images), atol=1e-4, rtol=0)
    assert all(torch.equal(each, before[name]) for name, each in result.model.state_dict().items())
    assert result.model.network[1].track_running_stats


def test_what_is_frozen_is_neither_trained_nor_sent(tmp_path: Path) -> None:
    module = network()
    first = next(module.parameters())
    first.requires_grad_(False)
    frozen = train(METHOD, model=module, on=toy_data(), out=tmp_path / "frozen", **QUICK)
    free = train(METHOD, model=network(), on=toy_data(), out=tmp_path / "free", **QUICK)
    assert torch.equal(next(frozen.model.network.parameters()), first)
    assert not torch.equal(next(free.model.network.parameters()), first)
    # Four bytes for each of its values less, there and back, for every client of every round that trained.
    trained = sum(len(each["cohort"]) - len(each["abstained"]) for each in free.rounds)
    assert trained == sum(len(each["cohort"]) - len(each["abstained"]) for each in frozen.rounds)
    assert free.summary["bytes_up"] - frozen.summary["bytes_up"] == 4 * first.numel() * trained


def test_the_module_that_was_handed_over_stays_as_it_was(tmp_path: Path) -> None:
    module = network()
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    train(METHOD, model=module, on=toy_data(), out=tmp_path / "run", **QUICK)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())


def test_rounds_come_as_records_and_as_columns(result: Result) -> None:
    assert [each["round"] for each in result.rounds] == result.columns["round"] == [1, 2]
    assert result.labels_only_accuracy == result.summary["labels_only_accuracy"]
    assert f"accuracy {result.accuracy:.1f} %" in repr(result)


def test_a_notebook_shows_the_result_as_a_picture(result: Result) -> None:
    assert result._repr_png_().startswith(b"\x89PNG")
    assert "data:image/png;base64," in result._repr_html_()
    assert (result.directory / "report.html").is_file()


def test_a_result_outlives_its_directory(result: Result, tmp_path: Path) -> None:
    gone = dataclasses.replace(result, directory=tmp_path / "gone")
    for to in ("onnx", "torchscript", "safetensors"):
        with pytest.raises(UserError, match=r"gone is gone: pass out=, the file to write$"):
            gone.export(to)
    with pytest.raises(UserError, match=r"^there is no model file .*gone/model\.safetensors$"):
        gone.export("safetensors", out=tmp_path / "model.safetensors")
    assert gone._repr_png_() is None
    assert gone._repr_html_() == f"<p>{html.escape(repr(gone))}</p>"
    assert not list(tmp_path.iterdir())
    assert gone.export("torchscript", out=tmp_path / "model.pt").exists()


def test_a_finished_run_can_be_loaded_again(result: Result) -> None:
    images, _ = paint(5, 1)
    again = load(result.directory, model=network())
    assert torch.equal(again.predict(images).confidences, result.predict(images).confidences)
    with pytest.raises(UserError, match="the model was handed over by a Python program"):
        load(result.directory)
    with pytest.raises(UserError, match="holds no finished run"):
        load(result.directory.parent)


def test_the_command_line_says_what_only_python_can_do(result: Result, capsys: Output, tmp_path: Path) -> None:
    unfinished = tmp_path / "run"
    unfinished.mkdir()
    for name in ("config.toml", "environment.json", "model.safetensors"):
        (unfinished / name).write_bytes((result.directory / name).read_bytes())
    images = tmp_path / "pictures"
    images.mkdir()
    for arguments in (["resume", str(unfinished)], ["predict", str(unfinished), str(images)]):
        assert invoke(arguments) == 2, arguments
        (line,) = capsys.readouterr().err.splitlines()
        assert "handed over by a Python program" in line
    assert invoke(["show", str(result.directory)]) == 0
    assert 'name = "python:Sequential"' in capsys.readouterr().out


# Models


def no_batchnorm() -> nn.Module:
    return network(bn=False)


def untracked(channels: int, classes: int) -> nn.Module:
    norm = nn.BatchNorm2d(4, track_running_stats=False)
    return nn.Sequential(nn.Conv2d(channels, 4, 3), norm, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, classes))


class Maker:
    def make(self, classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, classes))


MODELS = [no_batchnorm, untracked, Maker().make, Cnn(), "cnn", "toys:toy_model", network(bn=False)]


@pytest.mark.parametrize("model", MODELS)
def test_any_model(model: object, tmp_path: Path) -> None:
    result = train(METHOD, model=model, on=toy_data(), out=tmp_path / "run", **QUICK)
    assert result.model(paint(4, 0)[0]).shape == (4, 3)


def test_a_model_that_can_be_imported_is_recorded_by_its_name(tmp_path: Path) -> None:
    train(METHOD, model=toy_model, on=toy_data(), out=tmp_path / "run", **QUICK)
    assert 'name = "toys:toy_model"' in (tmp_path / "run/config.toml").read_text()
    assert load(tmp_path / "run").predict(paint(3, 0)[0]).labels.shape == (3,)


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        (nn.Sequential(nn.Flatten(), nn.Linear(192, 7)), r"the model gives \[2, 7\] for two pictures, but 3 classes"),
        (nn.Sequential(nn.Flatten(), nn.Linear(100, 3)), "the model cannot take pictures of 3 × 8 × 8: RuntimeError"),
        (3, "model must be a torch module"),
        ("wide_resnt", "did you mean 'wide_resnet'"),
        (lambda banana: nn.Linear(1, 1), "the model cannot be built with"),
    ],
)
def test_a_model_that_does_not_fit_is_told_at_once(model: object, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=sentence):
        train(METHOD, model=model, on=toy_data(), out=tmp_path / "run", **QUICK)


# Methods and options


def test_methods_by_name_and_numbers_of_numpy(tmp_path: Path) -> None:
    result = train("fedavg_fixmatch", model="cnn", on=toy_data(), out=tmp_path / "a", **{**QUICK, "rounds": 1})
    assert result.summary["method"] == "fedavg_fixmatch"
    method = SemiFL(threshold=np.float64(0.5), client_epochs=np.int64(1))
    train(method, model="cnn", on=toy_data(), out=tmp_path / "b", **{**QUICK, "rounds": 1})
    assert "threshold = 0.5\n" in (tmp_path / "b/config.toml").read_text()
    with pytest.raises(UserError, match=r"method must be a method such as SemiFL\(threshold=0.9\)"):
        train(SemiFL, model="cnn", on=toy_data(), **QUICK)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ({"rounds": "3"}, "rounds must be a whole number, not '3'"),
        ({"rounds": 2.0}, "rounds must be a whole number, not 2.0"),
        ({"rounds": True}, "rounds must be a whole number, not True"),
        ({"rounds": 0}, "rounds must be at least 1, not 0"),
        ({"start": "x"}, "start must be one of model, labels, not 'x'"),
        ({"precision": "fp16"}, "precision must be one of fp32, bf16, auto, not 'fp16'; did you mean 'bf16'?"),
        ({"metric": "acuracy"}, "metric must be one of accuracy, balanced_accuracy, auc, f1, not 'acuracy'; "),
        ({"threads": 100_000}, "threads must lie between 0 and 1024, not 100000"),
        ({"minutes": "1"}, "minutes must be a number, not '1'"),
        ({"workers": 0}, "workers must be at least 1, not 0"),
        ({"workers": "2"}, "workers must be a whole number, not '2'"),
        ({"device": 0}, "device must be a string, not 0"),
        ({"progress": "no"}, "progress must be True or False, not 'no'"),
        ({"health": "x"}, "health must be a semifl.Health, not str"),
        ({"on_round": 3}, "on_round must be a function of a round's record, not int"),
        ({"out": 3}, "out must be the path of a folder, not int"),
    ],
)
def test_a_bad_argument_is_one_sentence_before_anything_is_written(
    bad: dict, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=f"^{re.escape(sentence)}"):
        train(METHOD, model="cnn", on=toy_data(), **{**QUICK, **bad})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: SemiFL(optimizer="adam"), "optimizer must be one of sgd, adamw, not 'adam'; did you mean 'adamw'?"),
        (lambda: SemiFL(statistics="cohorts"), "statistics must be one of server, cohort, all, not 'cohorts'; "),
        (lambda: SemiFL(cohort_rounding="up"), "cohort_rounding must be one of floor, ceil, not 'up'"),
        (lambda: SemiFL(client_epochs="3"), "client_epochs must be a whole number, not '3'"),
        (lambda: SemiFL(client_epochs=2.5), "client_epochs must be a whole number, not 2.5"),
        (lambda: Cnn(norm="grupp"), "norm must be one of batch, group, not 'grupp'; did you mean 'group'?"),
        (lambda: WideResNet(depth="10"), "depth must be a whole number, not '10'"),
        (lambda: ResNet(depth=10), "depth must be one of 9, 18, not 10"),
        (lambda: FastCnn(widths=(4, 4)), "widths must be (a whole number, a whole number, a whole number), not (4, 4)"),
        (lambda: Health(collapse="stopp"), "collapse must be one of warn, skip, fallback, stop, not 'stopp'; "),
    ],
)
def test_a_bad_value_of_a_field_is_a_value_error(make, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}"):
        make()


def test_with_labels_held_out_every_number_is_of_the_model_that_is_given(tmp_path: Path) -> None:
    """Also the threshold, which nobody may use with another model."""
    two = TwoKinds(pictures=160).load()
    data = FederatedData(
        labeled=(two.images[:60], two.labels[:60]),
        clients=[two.images[60:110], two.images[110:]],
        test=(two.test_images, two.test_labels),
        validation=0.5,
    )
    method = SemiFL(activity_rate=1.0, client_epochs=2, server_epochs=2, lr=0.1)
    result = train(method, model="cnn", on=data, out=tmp_path / "run", **{**QUICK, "rounds": 4})
    assert result.summary["best_round"] != "final"  # else the kept model is the last one, and nothing is shown
    ill, sick = result.probabilities(two.test_images)[:, 1].numpy(), two.test_labels.numpy() == 1
    said = ill >= result.decision_threshold
    assert result.sensitivity == pytest.approx(100 * said[sick].mean())
    assert result.specificity == pytest.approx(100 * (~said[~sick]).mean())
    assert result.accuracy == pytest.approx(100 * ((ill >= 0.5) == sick).mean())


def test_the_guard_needs_validation(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"guard = true needs data\.validation"):
        train(METHOD, model="cnn", on=toy_data(), guard=True, out=tmp_path / "run", **QUICK)
    guarded = train(
        METHOD, model="cnn", on=toy_data(validation=0.25), guard=True, out=tmp_path / "run", **{**QUICK, "rounds": 1}
    )
    assert "guard" in guarded.summary


def test_public_names_load_when_they_are_used() -> None:
    assert set(semifl.__all__) <= set(dir(semifl))
    assert all(getattr(semifl, name).__module__.startswith("semifl") for name in semifl.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        semifl.trian  # noqa: B018


def test_toml_of_a_python_run_is_sound(result: Result) -> None:
    written = (result.directory / "config.toml").read_text()
    assert toml.dumps(decode(tomllib.loads(written)).table()) == written

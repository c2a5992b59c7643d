"""Networks by torch.compile: an option, off unless asked for, and one sentence where there is no compiler."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from faults.harness import FULL
from semifl.errors import UserError
from semifl.learning.compiling import refuse_without_compiler
from semifl.learning.network import Network
from semifl.learning.training import SGD, Fit, fit
from semifl.randomness import Seed


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3, bias=False), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))


def trained(compiled: bool) -> dict:
    generator = torch.Generator().manual_seed(3)
    batches = [torch.randn(size, 1, 4, 4, generator=generator) for size in (5, 5, 3)]

    def loss(network: Network, images: torch.Tensor) -> dict:
        return {"loss": F.cross_entropy(network(images), torch.arange(len(images)) % 2)}

    network = Network(model(), compiled=compiled)
    return fit(network, Fit(network.weights(), batches, loss, SGD(0.1), Seed(0))).weights


@pytest.mark.parametrize("backend", ["eager", *(["inductor"] if FULL else [])])  # the latter compiles for a minute
def test_a_compiled_network_learns_the_same(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    compiled, plain = trained(compiled=True), trained(compiled=False)
    for name, tensor in plain.items():
        torch.testing.assert_close(compiled[name], tensor, rtol=0, atol=1e-5)


def test_only_passes_of_training_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []
    monkeypatch.setattr(torch, "compile", lambda module: lambda images: passes.append(len(images)) or module(images))
    network = Network(model(), compiled=True)
    for size, training in ((4, True), (7, False), (5, True)):
        network.module.train(training)
        network(torch.zeros(size, 1, 4, 4))
    assert passes == [4, 5]
    Network(model())(torch.zeros(2, 1, 4, 4))
    assert passes == [4, 5]


def test_features_are_seen_in_a_compiled_network_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    network, module = Network(model(), compiled=True), model()
    images = torch.randn(5, 1, 4, 4, generator=torch.Generator().manual_seed(3))
    network(images)  # compiled by now, without anybody looking
    logits, features = network.with_features(images)
    torch.testing.assert_close(features, module[:4](images), rtol=0, atol=1e-5)
    torch.testing.assert_close(logits, module(images), rtol=0, atol=1e-5)


def test_without_a_compiler_it_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*args: object) -> None:
        raise RuntimeError("InvalidCxxCompiler: No working C++ compiler found\n\nSet TORCHDYNAMO_VERBOSE=1")

    monkeypatch.setattr(torch, "compile", lambda function: none)
    with pytest.raises(UserError, match=r"needs a compiler .*No working C\+\+ compiler found\); leave out compile$"):
        refuse_without_compiler("cpu")


@pytest.mark.skipif(not FULL, reason="half a minute; make test-faults")
def test_a_run_on_a_machine_without_a_compiler_ends_with_exit_code_2(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "semifl", "run", "digits", "--set", "compile=true", "--out", str(tmp_path / "run")]
    environment = {**os.environ, "CXX": "/nowhere/g++", "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "compile = true needs a compiler" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()

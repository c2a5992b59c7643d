"""A model that no machine, or not this one, could train is refused before any memory is taken."""

import dataclasses
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import backbones
from semifl import machine, registry
from semifl.cli import invoke
from semifl.configuration.build import refuse_too_large
from semifl.configuration.config import MODELS, decode
from semifl.data.dataset import Facts
from semifl.errors import UserError
from semifl.learning.network import parameters_of
from semifl.models.cnn import Cnn

FACTS = Facts(tuple("0123456789"), (0.5,) * 3, (0.25,) * 3, True, 3, 32)
ABSURD = (65_536, 2**31, 2**40, 2**62, 2**63 - 1, 10**9 * 6 + 4)
KEYS = [
    (name, field.name)
    for name in registry.names(MODELS)
    for field in dataclasses.fields(registry.find(MODELS, name, "model.name"))
    if isinstance(field.default, int)
]


@pytest.mark.parametrize("number", ABSURD)
@pytest.mark.parametrize(("name", "key"), KEYS)
def test_every_absurd_number_of_every_model_is_named(name: str, key: str, number: int) -> None:
    began = time.monotonic()
    with pytest.raises(UserError, match=rf"model\.{key}\b.*{number}"):
        refuse_too_large(decode({"model": {"name": name, key: number}}).model, FACTS)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("name", registry.names(MODELS))
def test_a_usual_model_is_let_through(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    backbones.lite(tmp_path / "backbones/efficientnet_lite0")
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path))
    small = replace(FACTS, size=16)
    refuse_too_large(decode({"model": {"name": name}}).model, small)


def test_what_counts_is_the_memory_for_weights_gradients_momentum_and_the_model_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Width 1: convolutions of 3·1, 1·2, 2·4 and 4·8 times 9, norms of 2·(1 + 2 + 4 + 8), and 8·10 + 10 at the end.
    parameters = 9 * (3 + 2 + 8 + 32) + 2 * 15 + 90
    assert parameters_of(lambda: Cnn(1).build(3, 32, 10)) == parameters
    model = decode({"model": {"name": "cnn", "width": 1}}).model
    monkeypatch.setattr(machine, "memory", lambda: 4 * 4 * parameters)
    refuse_too_large(model, FACTS)
    monkeypatch.setattr(machine, "memory", lambda: 4 * 4 * parameters - 1)
    with pytest.raises(UserError, match=r"model\.width = 1, .* has 525 parameters"):
        refuse_too_large(model, FACTS)


def test_counting_draws_no_random_number() -> None:
    before = torch.random.get_rng_state()
    parameters_of(lambda: Cnn(8).build(3, 32, 10))
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("verb", ["check", "run"])
def test_the_command_line_says_it_in_one_sentence(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke([verb, "digits", "--set", "model.width=65536"]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith("semifl: a model with model.depth = 10, model.width = 65536, model.norm = 'batch' has ")
    assert list(tmp_path.iterdir()) == []


def test_a_model_of_ones_own_that_cannot_be_built_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = 'model={name="toys:toy_model",hidden=4611686018427387904}'
    assert invoke(["run", "digits", "--set", own, "--out", str(tmp_path / "run")]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.startswith("semifl: the model cannot be built with ")

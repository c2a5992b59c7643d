"""Adding a method is one file: dropped into the folder it is listed, runs, and is under the contract tests."""

from pathlib import Path

import pytest

import semifl.methods
from contracts import test_methods
from semifl import registry
from semifl.cli import invoke
from semifl.experiments.config import METHODS

SCRATCH = '''"""Everyone trains one epoch on whatever the model that was sent believes; the server averages."""

from dataclasses import dataclass
from typing import NamedTuple


from semifl.data.augment import normalize
from semifl.federation.recipe import Recipe, supervised_loss
from semifl.federation.world import Update
from semifl.learning.training import Fit
from semifl.learning.weights import Snapshot, Weights, average, shapes


class State(NamedTuple):
    weights: Weights


class Batch(NamedTuple):
    images: object
    labels: object


@dataclass(frozen=True)
class Gullible(Recipe):
    def start(self, weights):
        return State(weights)

    def round(self, t, state, server, clients):
        fit = Fit(state.weights, self.server_batches(server), supervised_loss, self.server_sgd(t), server.seed)
        W = server.fit(fit).weights
        S_t = self.cohort(clients, t)
        model = Snapshot(W, self.refresh(W, server, clients, S_t))
        server.test(model)
        replies = clients.each(S_t, self.client_update, model, t, shapes(W))
        return State(average((reply.update.payload, 1.0) for reply in replies if reply.update) or W)

    def client_update(self, client, model, t):
        pseudo = client.pseudo_labels(model, client.images)
        batch = Batch(normalize(client.images, client.facts), pseudo.labels)
        fitted = client.fit(Fit(model.weights, [batch], supervised_loss, self.client_sgd(t), client.seed))
        return Update(fitted.weights, len(client.images), fitted.facts, {})

    def finish(self, t, state, server, clients):
        return Snapshot(state.weights, server.statistics(state.weights))

    def weights(self, state):
        return state.weights
'''


@pytest.fixture
def gullible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    folder = tmp_path / "scratch"
    folder.mkdir()
    (folder / "gullible.py").write_text(SCRATCH, encoding="utf-8")
    monkeypatch.setattr(semifl.methods, "__path__", [*semifl.methods.__path__, str(folder)])
    return "gullible"


def test_it_is_listed_and_runs_by_its_name(gullible: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gullible in registry.names(METHODS)
    assert invoke(["list", "methods"]) == 0
    assert "gullible         Everyone trains one epoch" in capsys.readouterr().out
    out = str(tmp_path / "run")
    settings = ["--set", "method.name=gullible", "--set", "rounds=1", "--set", "labels_only=false"]
    unset = ["--set", "data.clients=40"]
    path = tmp_path / "config.toml"
    path.write_text('[model]\nname = "cnn"\nwidth = 4\n', encoding="utf-8")
    assert invoke(["run", str(path), *settings, *unset, "--out", out, "--workers", "1"]) == 0
    assert (tmp_path / "run/result.json").exists()


def test_it_is_under_the_contract_tests(gullible: str, tmp_path: Path) -> None:
    test_methods.test_is_a_frozen_dataclass_that_says_what_it_needs(gullible)
    (tmp_path / "seeds").mkdir()
    test_methods.test_is_a_function_of_its_seed(gullible, tmp_path / "seeds")
    (tmp_path / "resume").mkdir()
    test_methods.test_resumes_exactly(gullible, tmp_path / "resume")
    test_methods.test_survives_toml(gullible, tmp_path)
    test_methods.test_sees_clients_only_through_the_protocol(gullible)


def test_a_mistyped_method_is_one_sentence(gullible: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["show", "digits", "--set", "method.name=gulible"]) == 2
    assert "did you mean 'gullible'" in capsys.readouterr().err

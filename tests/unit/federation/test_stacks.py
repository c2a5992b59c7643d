"""Clients that one process trains side by side: whole runs, failures among them, and what is refused."""

import pickle
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import pytest
import torch

from faults.harness import assert_same
from semifl.configuration.config import decode
from semifl.errors import RunStopped, UserError
from semifl.federation.local import LocalFederation
from semifl.federation.workers import Here, JobFailed
from semifl.federation.world import Round
from semifl.learning.weights import Snapshot
from semifl.methods.semifl import SemiFL
from semifl.randomness import Seed
from semifl.running.context import Silent
from semifl.running.loop import resume, start
from testbed import Testbed
from toys import KEPT, toy_table

PLAIN = {"name": "cnn", "width": 4}  # without dropout


def table(**keys: object) -> dict:
    toy = {**toy_table(**KEPT, activity_rate=1.0), "model": PLAIN, "rounds": 2, "labels_only": False, "stack": 3}
    toy["data"] = {**toy["data"], "partition": {"name": "dirichlet", "alpha": 0.5}}
    return {**toy, **keys}


def test_bits_depend_on_the_stack_and_not_on_who_computes_it(tmp_path: Path) -> None:
    class Stop(Silent):
        def round(self, record, best) -> None:
            raise KeyboardInterrupt

    start(decode(table()), tmp_path / "here")
    start(decode(table()), tmp_path / "workers", 2)
    assert_same(tmp_path / "workers", tmp_path / "here")
    with pytest.raises(KeyboardInterrupt):
        start(decode(table()), tmp_path / "cut", 2, observer=Stop())
    resume(tmp_path / "cut")
    assert_same(tmp_path / "cut", tmp_path / "here")
    assert "stack = 3" in (tmp_path / "here" / "config.toml").read_text()


@dataclass(frozen=True)
class Unlucky(SemiFL):
    """Client 1 fails in the middle of its training, client 2 abstains."""

    def client_update(self, client, model, t):
        if client.seed == t.seed.under("client", 2):
            return None
        return super().client_update(client, model, t)

    def client_fit(self, client, model, t, batches, loss):
        if client.seed == t.seed.under("client", 1):
            batches = chain(islice(batches, 2), failing())
        return super().client_fit(client, model, t, batches, loss)


def failing():
    raise ValueError("no more pictures")
    yield


def test_one_that_fails_and_one_that_abstains_leave_the_others_as_they_were() -> None:
    testbed = Testbed(model="toys:linear_model")
    method = Unlucky(threshold=0.0, client_batch=4)
    weights = testbed.first
    model = Snapshot(weights, testbed.server.statistics(weights))
    t = Round(1, 0.0, Seed(0).under("round", 1))
    clients = LocalFederation(Here(testbed.place), 4, method, testbed.tally, failures_allowed=1, stack=4)
    together = list(clients.each((0, 1, 2, 3), model, t))
    assert [reply.outcome for reply in together] == ["trained", "failed", "abstained", "trained"]
    assert together[1].reason == "ValueError: no more pictures (tests/unit/federation/test_stacks.py:65)"
    alone = list(LocalFederation(Here(testbed.place), 4, method, testbed.tally).each((0, 3), model, t))
    for mine, theirs in zip((together[0], together[3]), alone, strict=True):
        for name, change in theirs.update.change.items():
            torch.testing.assert_close(mine.update.change[name], change, rtol=0, atol=1e-5)
        assert mine.facts == theirs.facts
    with pytest.raises(RunStopped, match="client 1 failed in round 1: ValueError: no more pictures"):
        list(LocalFederation(Here(testbed.place), 4, method, testbed.tally, stack=4).each((0, 1, 2, 3), model, t))


def test_a_failure_travels_whole() -> None:
    there = pickle.loads(pickle.dumps(JobFailed("no space", "trace", 28, "OSError")))
    assert (there.reason, there.trace, there.errno, there.kind) == ("no space", "trace", 28, "OSError")


def test_a_model_with_dropout_is_one_sentence_and_leaves_no_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be stacked"):
        start(decode(table(model={"name": "toys:toy_model"})), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_stacked_clients_are_not_compiled() -> None:
    with pytest.raises(UserError, match="compile has no effect on clients that are stacked"):
        decode(table(compile=True))

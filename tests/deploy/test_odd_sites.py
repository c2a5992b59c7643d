"""End to end, as real processes: a site of another version, one that sends NaN, a desk that closes, ten sites."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the flare extra: pip install 'semifl[flare]'")

from deploy.net import ANOTHER_OPERATOR
from deploy.oddities import Oddities, federation, run_of

pytestmark = pytest.mark.skipif(os.environ.get("SEMIFL_DEPLOY") != "full", reason="part of make test-deploy")
ANOTHER_VERSION = "import semifl\nsemifl.__version__ = '0.0.1'\n"
SENDS_NAN = """
import torch
from semifl.methods.semifl import SemiFL
honest = SemiFL.client_update
def client_update(self, client, message, t):
    update = honest(self, client, message, t)
    if update is None:
        return None
    return update._replace(change={name: torch.full_like(each, torch.nan) for name, each in update.change.items()})
SemiFL.client_update = client_update
"""


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oddities]:
    folder = tmp_path_factory.mktemp("odd")
    sites = ("clinic-a", "clinic-b", "clinic-c")
    yield from federation(folder, sites, clinic_b=ANOTHER_VERSION, clinic_c=SENDS_NAN)


def test_another_version_is_refused_by_name_and_nan_never_reaches_the_model(net: Oddities) -> None:
    run = run_of(net, "odd", 3, min_updates=1, deadline=60.0)
    out, _ = run.communicate(timeout=240)
    assert run.returncode == 0, out
    events = (net.kits["hub"].runs / "odd/events.jsonl").read_text()
    assert '"site refused"' in events
    assert "clinic-b runs 0.0.1" in events
    for record in net.records("odd"):
        assert 2 in record["rejected"] + record["failed"], record["round"]
        assert 0 not in record["rejected"] + record["failed"] + record["late"]
        assert record["loss"] is not None  # a model with NaN has no finite loss


def test_a_desk_that_closes_and_returns_misses_nothing(net: Oddities) -> None:
    run = run_of(net, "desk", 25, min_updates=1, deadline=60.0)
    net.wait_for_rounds("desk", 3, seconds=120)
    run.send_signal(signal.SIGINT)
    out, _ = run.communicate(timeout=60)
    assert run.returncode == 130
    assert "goes on at the hub" in " ".join(out.split())
    closed = len(net.records("desk"))
    net.wait_for_rounds("desk", min(25, closed + 2), seconds=120)  # nobody watches
    again = run_of(net, "desk", 25, min_updates=1, deadline=60.0)
    out, _ = again.communicate(timeout=300)
    assert again.returncode == 0, out
    copy, original = (net.folder / "runs/desk/rounds.jsonl"), (net.kits["hub"].runs / "desk/rounds.jsonl")
    assert copy.read_text() == original.read_text()
    assert len(original.read_text().splitlines()) == 25


def test_two_operators_follow_one_run_and_either_may_stop_it(net: Oddities) -> None:
    """Each at a desk of their own: the second finds the job that the first has begun."""
    first = run_of(net, "shared", 400, min_updates=1, deadline=60.0)
    net.wait_for_rounds("shared", 2, seconds=300)
    second = run_of(net, "shared", 400, "--out", "at-bobs", operator=ANOTHER_OPERATOR, min_updates=1, deadline=60.0)
    theirs = net.folder / "at-bobs/rounds.jsonl"
    net.wait_until(lambda: theirs.exists() and len(theirs.read_text().splitlines()) >= 3, seconds=300)
    net.semifl("deploy", "stop", str(net.kits[ANOTHER_OPERATOR].folder))
    for each in (first, second):
        out, _ = each.communicate(timeout=240)
        assert each.returncode == 1, out
        assert "was stopped; every complete round is kept" in " ".join(out.split())
        assert "Traceback" not in out
    original = (net.kits["hub"].runs / "shared/rounds.jsonl").read_text()
    assert theirs.read_text() == (net.folder / "runs/shared/rounds.jsonl").read_text() == original


def test_ten_sites_on_one_machine(tmp_path: Path) -> None:
    sites = tuple(f"clinic-{number}" for number in range(10))
    for net in federation(tmp_path, sites):
        run = run_of(net, "ten", 2, min_updates=10, deadline=300.0)
        out, _ = run.communicate(timeout=540)
        assert run.returncode == 0, out
        for record in net.records("ten"):
            assert record["cohort"] == list(range(10))
            assert not record["late"] + record["failed"] + record["rejected"]

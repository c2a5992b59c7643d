"""A sweep instead of single moments: every kind of process is killed again and again over one run, and the bits stay.

SEMIFL_KILLS says how often each kind is killed; ten times if it does not.
"""

import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

pytest.importorskip("nvflare", reason="needs the flare extra: pip install 'semifl[flare]'")

from deploy.net import OPERATOR, Net
from federated_pictures import make_federation, run_table
from semifl import toml
from semifl.configuration.config import decode
from semifl.running.context import Silent
from semifl.running.loop import start

pytestmark = pytest.mark.skipif(os.environ.get("SEMIFL_DEPLOY") != "full", reason="part of make test-deploy")
KILLS = int(os.environ.get("SEMIFL_KILLS", "10"))
SITES = ("clinic-a", "clinic-b")
ROUNDS = 5000  # more than there is time for: a run is stopped when it has been killed often enough
# A round that a kill spoils is asked for again, so what is sent may be more; all else must be the same.
ASKED_AGAIN = ("seconds", "bytes_down", "bytes_up")
LET_OUT = {"class_histogram = false": "class_histogram = true", "smallest_count = 5 ": "smallest_count = 1 "}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("sweep")
    os.environ["SEMIFL_DATA"] = str(folder / "cache")
    yield make_federation(folder / "pictures", SITES)
    del os.environ["SEMIFL_DATA"]


@pytest.fixture(scope="module")
def net(pictures: Path) -> Iterator[Net]:
    net = Net(pictures.parent, SITES)
    try:
        net.provision()
        for site in SITES:
            text = net.kits[site].policy.read_text()
            for old, new in LET_OUT.items():
                text = text.replace(old, new)
            net.kits[site].policy.write_text(text)
        net.start_all(pictures)
        yield net
    finally:
        net.close()


def whole_machine(name: str) -> Callable[[Net, Path], None]:
    """The hub, or a site, loses power and comes back."""

    def strike(net: Net, pictures: Path) -> None:
        net.kill(name)
        where = pictures if name == "hub" else pictures / "clients" / name
        net.start(name, "--data", str(where))

    return strike


def one_process(find: Callable[[Net], psutil.Process]) -> Callable[[Net, Path], None]:
    """A single process of a machine dies; whoever started it must notice."""

    def strike(net: Net, pictures: Path) -> None:
        find(net).kill()

    return strike


def engine_parent(net: Net, name: str) -> psutil.Process:
    """The engine itself, without its jobs."""
    folder = str(net.kits[name].engine)
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if folder in words and not any("runner_process" in word or "worker_process" in word for word in words):
            return process
    raise AssertionError(f"{name} has no engine")


TARGETS = {
    "hub": whole_machine("hub"),
    "site": whole_machine("clinic-b"),
    "trainer": one_process(lambda net: net.trainer("clinic-b")),
    "the hub's engine": one_process(lambda net: engine_parent(net, "hub")),
    "the hub's job": one_process(lambda net: net.job_process("hub")),
    "a site's engine": one_process(lambda net: engine_parent(net, "clinic-b")),
    "a site's job": one_process(lambda net: net.job_process("clinic-b")),
}


def kill(net: Net, pictures: Path, target: str) -> None:
    """At once, or as soon as there is something to kill."""
    until = time.monotonic() + 120
    while True:
        try:
            return TARGETS[target](net, pictures)
        except (AssertionError, psutil.NoSuchProcess):
            assert time.monotonic() < until, f"there is no {target} to kill"
            time.sleep(0.1)


def first_rounds(pictures: Path, table: dict, count: int, folder: Path) -> list[dict]:
    """The same rounds in one process that nobody kills."""

    class Enough(Silent):
        def round(self, record, best) -> None:
            if record["round"] == count:
                raise KeyboardInterrupt

    config = decode({**table, "data": {**table["data"], "name": "folder", "root": str(pictures)}})
    with pytest.raises(KeyboardInterrupt):
        start(config, folder, observer=Enough())
    return [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]


def plain(records: list[dict]) -> list[dict]:
    return [{key: value for key, value in each.items() if key not in ASKED_AGAIN} for each in records]


@pytest.mark.parametrize("target", TARGETS)
def test_bits_do_not_depend_on_who_died_and_when(net: Net, pictures: Path, tmp_path: Path, target: str) -> None:
    name = f"sweep-{list(TARGETS).index(target)}"
    table = run_table(rounds=ROUNDS, client_epochs=4)
    config = net.folder / f"{name}.toml"
    deploy = {"deadline": 20.0, "min_updates": len(SITES), "attempts": 50}
    config.write_text(toml.dumps({**table, "deploy": deploy}))
    run = net.run(config, "--name", name)
    try:
        chance = random.Random(target)
        for _ in range(KILLS):
            net.wait_for_rounds(name, len(net.records(name)) + 1, seconds=240)
            time.sleep(chance.uniform(0, 2))
            kill(net, pictures, target)
        net.wait_for_rounds(name, len(net.records(name)) + 2, seconds=240)
    finally:  # a run that goes on would keep the hub from the next target's
        net.semifl("deploy", "stop", str(net.kits[OPERATOR].folder), seconds=300)
    out, _ = run.communicate(timeout=240)
    assert "Traceback" not in out
    records = net.records(name)
    assert plain(records) == plain(first_rounds(pictures, table, len(records), tmp_path / "local"))
    print(f"{target}: {KILLS} kills over {len(records)} rounds, all bits the same")

"""Too much at each door of a federation of real processes: an answer of a site, a packet of a hub, a hub's news to a
desk, each of 300 MB. Whoever gets it hardly grows, and goes on. Many small answers are in `test_insiders.py`."""

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

pytest.importorskip("nvflare", reason="needs the flare extra: pip install 'semifl[flare]'")

from deploy.net import OPERATOR
from deploy.oddities import Oddities, federation, run_of

pytestmark = pytest.mark.skipif(os.environ.get("SEMIFL_DEPLOY") != "full", reason="part of make test-deploy")
HONEST, GREEDY = "clinic-a", "clinic-b"
SIZE, MOST = 300 << 20, 120 << 20  # bytes: of what is sent, and by which an honest process may grow
ROUNDS = 1000  # more than there is time for
# Each door's flag is a file: while it lies there, too much is sent through that door.
ILL_HUB = """
import pathlib
from semifl.deploy.flare import controller, streams
flags = pathlib.Path({flags!r})
streams.LARGEST["return_only/server_command:app_command"] = 1 << 40  # such a hub has no limits for itself
send, answer = controller.FlareTransport._send, controller.JobProgress.answer
def _send(self, site, packet, *more):
    if (flags / "hub to site").exists() and site == {honest!r}:
        packet += bytes({size})
    return send(self, site, packet, *more)
def told(self, *question):
    news = answer(self, *question)
    return {{**news, "warnings": ["x" * {size}]}} if (flags / "hub to desk").exists() else news
controller.FlareTransport._send, controller.JobProgress.answer = _send, told
"""
ILL_SITE = """
import pathlib
from semifl.deploy.site import Site
flags = pathlib.Path({flags!r})
answer = Site.answer
def too_much(self, packet):
    return answer(self, packet) + (bytes({size}) if (flags / "site to hub").exists() else b"")
Site.answer = too_much
"""


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oddities]:
    folder = tmp_path_factory.mktemp("doors")
    facts = {"flags": str(folder / "flags"), "honest": HONEST, "size": SIZE}
    (folder / "flags").mkdir()
    yield from federation(folder, (HONEST, GREEDY), hub=ILL_HUB.format(**facts), clinic_b=ILL_SITE.format(**facts))


@pytest.fixture
def run(net: Oddities, request: pytest.FixtureRequest) -> Iterator[str]:
    """A run of this test's own, which outlives what happens at the doors."""
    name = request.node.name.replace("_", "-")[:60]
    net.desk = begin(net, name)
    try:
        net.wait_for_rounds(name, 3, seconds=240)
        yield name
    finally:
        stop(net)


def begin(net: Oddities, name: str) -> subprocess.Popen[str]:
    return run_of(net, name, ROUNDS, min_updates=1, deadline=30.0)


def stop(net: Oddities) -> None:
    net.semifl("deploy", "stop", str(net.kits[OPERATOR].folder), seconds=240)
    net.desk.communicate(timeout=240)


class Growth:
    """By how much processes have grown since they were first looked at; one that is new counts from its first look."""

    def __init__(self, *tops: psutil.Process) -> None:
        self._tops, self._first, self.most = tops, {}, 0
        self.look()

    def look(self) -> None:
        for top in self._tops:
            for process in (top, *top.children(recursive=True)):
                try:
                    used = process.memory_info().rss
                except psutil.NoSuchProcess:
                    continue
                self.most = max(self.most, used - self._first.setdefault(process.pid, used))

    def watch(self, until: Callable[[], bool], seconds: float = 240) -> None:
        end = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < end
            self.look()
            time.sleep(0.05)


def engine_of(net: Oddities, name: str) -> list[psutil.Process]:
    folder = str(net.kits[name].engine)
    return [each for each in psutil.process_iter(["cmdline"]) if folder in (each.info["cmdline"] or [])]


def flood(net: Oddities, door: str, growth: Growth, until: Callable[[], bool]) -> None:
    flag = net.folder / "flags" / door
    flag.touch()
    try:
        growth.watch(until)
    finally:
        flag.unlink()


def job_log(net: Oddities, name: str) -> Path:
    """What the job that runs now writes: a gate's refusals are those of the process that it stands before."""
    words = net.job_process(name).cmdline()
    job = words[words.index("-n") + 1]
    return next(path for path in net.kits[name].logs.rglob("log.txt") if job in str(path))


def refused_as_too_large(log: Path) -> bool:
    return any("refused from" in line and "larger than" in line for line in log.read_text().splitlines())


def missed(net: Oddities, run: str, client: int, after: int) -> list[dict]:
    """The rounds after one in which this client had no part."""
    return [record for record in net.records(run)[after:] if client in record["late"] + record["failed"]]


def test_a_sites_answer_is_as_large_as_was_asked(net: Oddities, run: str) -> None:
    growth, before = Growth(*engine_of(net, "hub")), len(net.records(run))
    flood(net, "site to hub", growth, lambda: bool(missed(net, run, 1, before)))
    assert growth.most < MOST, f"the hub grew by {growth.most >> 20} MB"
    assert refused_as_too_large(job_log(net, "hub"))
    assert not missed(net, run, 0, before)  # the honest site has its turn
    reached = len(net.records(run))
    net.wait_until(lambda: len(net.records(run)) - reached > len(missed(net, run, 1, reached)), seconds=240)


def test_a_hubs_packet_is_as_large_as_its_order_needs(net: Oddities, run: str) -> None:
    growth, before = Growth(*engine_of(net, HONEST)), len(net.records(run))
    flood(net, "hub to site", growth, lambda: bool(missed(net, run, 0, before)))
    assert growth.most < MOST, f"the site grew by {growth.most >> 20} MB"
    assert refused_as_too_large(job_log(net, HONEST))
    stop(net)  # FLARE at the site waits for the rest of what it was sent, and would until the job ends
    reached = len(net.records(run))
    net.desk = begin(net, run)
    net.wait_until(lambda: len(net.records(run)) - reached > len(missed(net, run, 0, reached)), seconds=240)


def test_a_hubs_news_are_as_large_as_a_desk_takes(net: Oddities, run: str) -> None:
    growth, before = Growth(psutil.Process(net.desk.pid)), len(net.records(run))
    flood(net, "hub to desk", growth, lambda: len(net.records(run)) >= before + 4)
    assert growth.most < MOST, f"the desk grew by {growth.most >> 20} MB"
    assert net.desk.poll() is None
    copy, reached = net.folder / "runs" / run / "rounds.jsonl", len(net.records(run))
    net.wait_until(lambda: len(copy.read_text().splitlines()) > reached, seconds=240)  # it follows again

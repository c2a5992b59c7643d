"""Members of a federation against it: a site, an operator, a hub, and a neighbour without a kit try every command that
FLARE knows on everybody else. Each of them is FLARE as it is; those they attack are semifl's own processes."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

pytest.importorskip("nvflare", reason="needs the flare extra: pip install 'semifl[flare]'")

from deploy import intruder
from deploy.net import OPERATOR, Net
from federated_pictures import make_federation, run_table
from semifl import toml
from semifl.deploy.flare.provision import environment, hub_command, settle, site_command
from semifl.deploy.flare.session import HubDown, HubLine
from semifl.deploy.place import PlaceOfData, write_place
from semifl.deploy.privacy import Ledger

pytestmark = pytest.mark.skipif(os.environ.get("SEMIFL_DEPLOY") != "full", reason="part of make test-deploy")
SITES = ("clinic-a", "clinic-b", "clinic-c")
HONEST = SITES[:2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("federation")


@pytest.fixture(scope="module")
def pictures(folder):
    return make_federation(folder / "pictures", SITES)


@pytest.fixture(scope="module")
def net(folder, pictures):
    """The hub and two honest sites, each with something to lose; the third site's kit is the intruder's."""
    net = Net(folder, SITES)
    try:
        net.provision()
        for site in SITES:
            settle(net.kits[site])
            Ledger(net.kits[site].memory / "privacy.json").charge(4.0)
        for site in HONEST:
            net.start(site, "--data", str(pictures / "clients" / site))
        settle(net.kits[OPERATOR])
        net.start("hub", "--data", str(pictures))
        yield net
    finally:
        net.close()


@pytest.fixture(scope="module")
def member(net, pictures):
    """clinic-c: takes part like the others, by FLARE as it is, and attacks when it is told to."""
    kit = net.kits["clinic-c"]
    write_place(kit.folder, PlaceOfData(pictures / "clients" / "clinic-c"))
    intruder = Intruder(net, "clinic-c", site_command(kit))
    yield intruder
    intruder.close()


@pytest.fixture(scope="module")
def run(net, member):
    """A long run of all three, which nothing here may disturb."""
    wait_for(lambda: len(connected(net)) == 3, 90)
    table = {**run_table(rounds=400, client_epochs=2), "deploy": {"deadline": 20.0, "min_updates": 1}}
    (net.folder / "long.toml").write_text(toml.dumps(table))
    process = net.run(net.folder / "long.toml", "--name", "long")
    net.wait_for_rounds("long", 2, 120)
    return process


def wait_for(condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.3)


def connected(net):
    try:
        line = HubLine(net.kits[OPERATOR])
    except HubDown:
        return []
    try:
        return line.connected()
    finally:
        line.close()


def engine_of(net, name):
    """The processes of one participant's engine."""
    folder = str(net.kits[name].engine)
    return [each for each in psutil.process_iter(["cmdline"]) if folder in (each.info["cmdline"] or [])]


def job_of(net, name):
    """The id of the job that runs now."""
    words = net.job_process(name).cmdline()
    return words[words.index("-n") + 1]


class Intruder:
    """FLARE's own program with somebody's kit, and the order to attack."""

    def __init__(self, net, name, command):
        self.folder = Path(tempfile.mkdtemp(prefix="intruder-", dir=net.folder))
        kit = net.kits[name]
        program = next(word for word in command if word.endswith("_train"))
        words = command[command.index(program) :]
        self.log = (self.folder / "out").open("wb")
        self.process = subprocess.Popen(
            [sys.executable, intruder.__file__, str(self.folder), *words],
            env={**environment(kit), "PYTHONPATH": str(Path(__file__).parent)},
            cwd=kit.engine, stdout=self.log, stderr=self.log,
        )  # fmt: skip

    def begin(self, what, targets, **more):
        (self.folder / "results.json").unlink(missing_ok=True)
        (self.folder / "attack.part").write_text(json.dumps({"what": what, "targets": targets, **more}))
        (self.folder / "attack.part").rename(self.folder / "attack.json")

    def attack(self, what, targets, seconds=240, **more):
        self.begin(what, targets, **more)
        wait_for(self.is_done, seconds)
        return json.loads((self.folder / "results.json").read_text())

    def is_done(self):
        return (self.folder / "results.json").exists()

    def close(self):
        self.process.kill()
        self.process.wait()


class Possessions:
    """What the honest have, to be compared before and after."""

    def __init__(self, net):
        self.net = net
        self.before = self._look()
        self.secrets = []
        for name in ("hub", *HONEST):
            kit = net.kits[name]
            key = (kit.startup / ("server.key" if name == "hub" else "client.key")).read_text()
            self.secrets += [key.splitlines()[3], "[limits]", "privacy.json", f"clients/{name}"]

    def _look(self):
        ledgers = [Ledger(self.net.kits[site].memory / "privacy.json").spent(1e-5) for site in HONEST]
        return ledgers, [self._engine(name) for name in ("hub", *HONEST)]

    def _engine(self, name):
        return [
            each.pid
            for each in engine_of(self.net, name)
            if any(word.endswith("_train") for word in each.info["cmdline"])
        ]

    def check(self, results):
        assert results
        said = json.dumps(results)
        for secret in self.secrets:
            assert secret not in said
        assert self._look() == self.before
        assert all(len(engine) == 1 for engine in self.before[1])


def obeyed(results, harmless=()):
    """The attempts that were answered as if they were in order."""
    return [
        each for each in results
        if each["code"] == "ok" and "not authorized" not in each["said"] and each["topic"] not in harmless
    ]  # fmt: skip


# Programs of their own, for what they change in FLARE must not reach the tests. Their results are the last they print.
OPERATORS_LINE = """
from semifl.deploy.flare import session
from semifl.deploy.kit import read_kit
session.harden_desk = lambda: None  # this desk wants to hear everything
line = session.HubLine(read_kit(pathlib.Path(sys.argv[1])))
results = intruder.attack(line._session.api.cell, sys.argv[2:])
"""
LOCAL_SOCKET = """
from nvflare.fuel.f3 import communicator
from nvflare.fuel.f3.cellnet.cell import Cell
from semifl.deploy.flare.local_socket import LocalSocketDriver
communicator.driver_mgr.register(LocalSocketDriver)
results = []
for name in ("evil", "01234567-89ab-cdef-0123-456789abcdef"):
    cell = Cell("clinic-a." + name, "", False, {}, parent_url="semifl-local://local" + sys.argv[1])
    cell.core_cell.start()
    results += intruder.attack(cell, ["clinic-a", "clinic-b", "server"])
    cell.core_cell.stop()
"""


def attack_alone(code, *words):
    begin = f"import json, os, pathlib, sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport intruder\n"
    end = "print('RESULTS' + json.dumps(results), flush=True)\nos._exit(0)\n"
    command = [sys.executable, "-c", begin + code + end, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert "RESULTS" in done.stdout, done.stdout + done.stderr
    return json.loads(done.stdout.partition("RESULTS")[2])


def test_a_site_reaches_nobody(net, run, member):
    """Whatever clinic-c sends to sites, jobs or the hub, but for what every site may say to its hub."""
    mine = Possessions(net)
    job = job_of(net, "clinic-a")
    rounds = len(net.records("long"))
    others = [*HONEST, f"clinic-a.{job}", f"server.{job}"]
    results = member.attack("everything", others)
    assert {each["target"] for each in results} == set(others)
    assert len(results) > 4 * 100
    assert obeyed(results) == []
    mine.check(results)
    net.wait_for_rounds("long", rounds + 3)
    assert all(set(record["cohort"]) >= {0, 1} for record in net.records("long")[rounds:])
    assert job_of(net, "clinic-a") == job, "the run had to begin a new job"


def test_a_job_of_a_site_reaches_nobody_but_its_own_job_at_the_hub(net, run, member):
    mine = Possessions(net)
    job = job_of(net, "clinic-a")
    targets = ["clinic-a", f"clinic-b.{job}", "server", f"server.{job}"]
    results = member.attack("everything", targets, job=job)
    assert obeyed(results, {"get_task", "submit_update"}) == []
    assert {each["target"] for each in obeyed(results)} <= {f"server.{job}"}
    mine.check(results)
    net.wait_for_rounds("long", len(net.records("long")) + 3)
    assert job_of(net, "clinic-a") == job, "the run had to begin a new job"


def test_a_site_commands_nothing_at_the_hub(net, run, member):
    mine = Possessions(net)
    job = job_of(net, "clinic-a")
    results = member.attack("everything", ["server"])
    # A site greets the hub, and may say that it lives, leaves, or has failed: that is all, and all about itself.
    own = {"challenge", "register", "heart_beat", "quit", "report_job_failure"}
    assert obeyed(results, own) == []
    mine.check(results)
    net.wait_for_rounds("long", len(net.records("long")) + 3)
    assert job_of(net, "clinic-a") == job, "the run had to begin a new job"


def test_an_operator_reaches_no_site(net, run):
    mine = Possessions(net)
    job = job_of(net, "clinic-a")
    results = attack_alone(OPERATORS_LINE, str(net.kits[OPERATOR].folder), *HONEST, f"clinic-a.{job}", f"server.{job}")
    assert obeyed(results) == []
    mine.check(results)
    net.wait_for_rounds("long", len(net.records("long")) + 3)


def test_an_operator_has_the_commands_that_semifl_uses_and_no_others(net, run):
    from nvflare.apis.fl_constant import AdminCommandNames
    from nvflare.fuel.f3.cellnet import net_manager

    from semifl.deploy.flare.gate import COMMANDS

    mine = Possessions(net)
    line = HubLine(net.kits[OPERATOR])
    try:
        api = line._session.api
        shell = {"pwd", "ls", "cat", "head", "tail", "grep", "sys_info", "configure_site_log", "report_resources"}
        names = intruder.words(AdminCommandNames) | shell | {"report_env", "dead", "stop_cell", "stop_net", "cells"}
        assert "NetManager" in vars(net_manager)
        said = {}
        for name in sorted(names - COMMANDS):
            for words in (f"{name} clinic-a", f"{name} client clinic-a startup/client.key", f"{name} server"):
                said[words] = json.dumps(api.server_execute(words), default=str)
        assert len(said) > 90
        assert [words for words, answer in said.items() if "not authorized" not in answer.lower()] == []
        mine.check([said])
        net.wait_for_rounds("long", len(net.records("long")) + 3)
    finally:
        line.close()


def test_a_neighbour_without_a_kit_finds_no_port_and_a_socket_of_its_owner(net, run):
    for name in ("hub", *HONEST):
        sockets = [each for process in engine_of(net, name) for each in process.net_connections("tcp")]
        listening = {each.laddr.port for each in sockets if each.status == "LISTEN"}
        assert listening == ({net.port} if name == "hub" else set())
        socket = net.kits[name].engine / "jobs.socket"
        assert socket.is_socket()
        assert socket.stat().st_mode & 0o077 == 0
        assert net.kits[name].folder.stat().st_mode & 0o077 == 0


def test_a_process_of_the_same_user_is_no_job_of_the_site(net, run):
    """Who can open the socket could as well read the key; all the same, nothing is given away there."""
    mine = Possessions(net)
    results = attack_alone(LOCAL_SOCKET, str(net.kits["clinic-a"].engine / "jobs.socket"))
    assert obeyed(results) == []
    mine.check(results)
    net.wait_for_rounds("long", len(net.records("long")) + 3)


@pytest.mark.parametrize(
    ("size", "count", "patience"), [(600 << 20, 3, 20.0), (60 << 10, 2000, 0.01)], ids=["large", "many"]
)
def test_one_site_cannot_exhaust_the_hub(net, run, member, size, count, patience):
    """Three answers of 600 MB, then 2,000 small ones in a few rounds, that nobody asked for; the hub hardly grows."""
    job = job_of(net, "hub")
    engine = engine_of(net, "hub")
    assert len(engine) == 2
    before, rounds = [each.memory_info().rss for each in engine], len(net.records("long"))
    member.begin("unasked", [f"server.{job}"], size=size, count=count, patience=patience, job=job)
    most = list(before)
    while not member.is_done():
        most = [max(large, each.memory_info().rss) for large, each in zip(most, engine, strict=True)]
        time.sleep(0.05)
    grown = [(large - small) >> 20 for large, small in zip(most, before, strict=True)]
    assert max(grown) < 120, f"grown by {grown} MB"
    net.wait_for_rounds("long", rounds + 3)


def test_a_hub_of_ill_will_commands_nothing_but_jobs(net, run, member):
    """The last test: the honest hub makes room for FLARE's own, with the hub's kit."""
    member.close()
    net.semifl("deploy", "stop", str(net.kits[OPERATOR].folder), check=False)
    net.processes.pop("hub").terminate()
    wait_for(lambda: not engine_of(net, "hub"), 40)
    hub = net.kits["hub"]
    before = [Ledger(net.kits[site].memory / "privacy.json").spent(1e-5) for site in HONEST]
    intruder = Intruder(net, "hub", hub_command(hub))
    try:
        wait_for(lambda: len(connected(net)) >= 2, 90)
        results = intruder.attack("everything", list(HONEST))
        # A hub may ask whether a site is free; what it may start is a signed job, and no job is named like a folder.
        assert obeyed(results, {"train.check_status"}) == []
        said = json.dumps(results)
        for site in HONEST:
            kit = net.kits[site]
            assert (kit.startup / "client.key").read_text().splitlines()[3] not in said
            assert (kit.memory / "privacy.json").exists()
        assert [Ledger(net.kits[site].memory / "privacy.json").spent(1e-5) for site in HONEST] == before
    finally:
        intruder.close()

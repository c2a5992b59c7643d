"""The same method on real processes over TLS: same bits, kills, restarts, deadlines. `make test-deploy` runs them all;
`make test` the first one."""

import json
import os
import time
from pathlib import Path

import psutil
import pytest
from safetensors.torch import load_file

pytest.importorskip("nvflare", reason="needs the flare extra: pip install 'semifl[flare]'")

from deploy.net import OPERATOR, CountingProxy, Net
from federated_pictures import make_federation, run_table
from semifl import toml
from semifl.configuration.config import decode
from semifl.deploy.flare.job import write_job
from semifl.deploy.flare.session import HubLine
from semifl.learning.weights import digest
from semifl.running.loop import start

SITES = ("clinic-a", "clinic-b")
full = pytest.mark.skipif(os.environ.get("SEMIFL_DEPLOY") != "full", reason="part of make test-deploy")
LET_OUT = {"class_histogram = false": "class_histogram = true", "smallest_count = 5 ": "smallest_count = 1 "}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("federation")
    os.environ["SEMIFL_DATA"] = str(folder / "cache")
    yield make_federation(folder / "pictures", SITES)
    del os.environ["SEMIFL_DATA"]


@pytest.fixture(scope="module")
def net(pictures):
    """Hub and both sites, up for all tests; a test that kills one starts it again."""
    net = Net(pictures.parent, SITES)
    try:
        net.provision()
        for site in SITES:
            policy = net.kits[site].policy
            for old, new in LET_OUT.items():
                assert old in policy.read_text()
                policy.write_text(policy.read_text().replace(old, new))
        net.start_all(pictures)
        yield net
    finally:
        net.close()


def begin(net, name, table, **deploy):
    config = net.folder / f"{name}.toml"
    config.write_text(toml.dumps({**table, "deploy": deploy} if deploy else table))
    return net.run(config, "--name", name)


def end(run, seconds=150):
    out, _ = run.communicate(timeout=seconds)
    assert run.returncode == 0, out
    return out


def lines(folder, without=()):
    records = [json.loads(line) for line in (folder / "rounds.jsonl").read_text().splitlines()]
    return [{key: record[key] for key in record if key not in ("seconds", *without)} for record in records]


def simulate(pictures, table, folder):
    start(decode({**table, "data": {**table["data"], "name": "folder", "root": str(pictures)}}), folder)
    return folder


def same_bits(remote: Path, local: Path, without: tuple[str, ...] = ()) -> None:
    rounded = (*without, "client_loss", "agreement", "terms")  # a site tells the clients' with three digits
    assert lines(remote, rounded) == lines(local, rounded)
    assert digest(load_file(remote / "model.safetensors")) == digest(load_file(local / "model.safetensors"))


def test_a_run_over_tls_has_the_bits_of_a_simulation(net, pictures, tmp_path):
    table = run_table(rounds=4)
    out = end(begin(net, "bits", table, min_updates=2))
    local = simulate(pictures, table, tmp_path / "local")
    same_bits(net.kits["hub"].runs / "bits", local)
    same_bits(net.folder / "runs" / "bits", local)  # what the operator was brought
    assert "round 4 of 4" in out
    assert (net.folder / "runs" / "bits" / "report.html").exists()
    assert not (net.folder / "runs" / "bits" / "checkpoint").exists()


@full
def test_another_method_has_the_bits_of_a_simulation(net, pictures, tmp_path):
    table = run_table(rounds=3, name="fedavg_fixmatch")
    end(begin(net, "fixmatch", table, min_updates=2))
    same_bits(net.kits["hub"].runs / "fixmatch", simulate(pictures, table, tmp_path / "local"))


@full
def test_a_killed_hub_goes_on_after_the_last_complete_round(net, pictures, tmp_path):
    table = run_table(rounds=14, client_epochs=8)
    run = begin(net, "killed-hub", table, min_updates=2)
    net.wait_for_rounds("killed-hub", 4)
    net.kill("hub")
    assert len(net.records("killed-hub")) < 14
    time.sleep(2)
    net.start("hub", "--data", str(pictures))
    out = end(run)
    assert "cannot be reached" in out
    same_bits(net.kits["hub"].runs / "killed-hub", simulate(pictures, table, tmp_path / "local"))


@full
def test_a_killed_trainer_is_one_failed_update(net):
    run = begin(net, "killed-trainer", run_table(rounds=12, client_epochs=40))
    net.wait_for_rounds("killed-trainer", 3)
    net.trainer("clinic-b").kill()
    end(run)
    failed = [record["round"] for record in net.records("killed-trainer") if record["failed"]]
    assert len(failed) == 1
    assert net.records("killed-trainer")[failed[0] - 1]["failed"] == [1]
    events = (net.kits["hub"].runs / "killed-trainer" / "events.jsonl").read_text()
    assert "its trainer process died" in events
    assert not [line for line in events.splitlines() if '"resumed"' in line]  # no second job was needed


@full
def test_a_lost_site_is_dropped_and_readmitted_when_it_is_back(net, pictures):
    run = begin(net, "lost-site", run_table(rounds=30, client_epochs=20), deadline=4.0)
    net.wait_for_rounds("lost-site", 3)
    net.kill("clinic-b")
    net.wait_for_rounds("lost-site", 6)
    net.start("clinic-b", "--data", str(pictures / "clients" / "clinic-b"))
    out = end(run, 240)
    missing = [record["round"] for record in net.records("lost-site") if record["late"] == [1]]
    assert missing
    assert missing[-1] < 30, "the site never came back"
    assert "came back" in out
    assert len(net.records("lost-site")) == 30


@full
def test_a_silent_site_is_no_outage_of_the_hub(net):
    """All processes of clinic-b stand still for longer than it takes to look for sites that have come back."""
    run = begin(net, "silent", run_table(rounds=40, client_epochs=5), deadline=3.0)
    net.wait_for_rounds("silent", 2)
    folder = str(net.kits["clinic-b"].engine)
    still = [each for each in psutil.process_iter(["cmdline"]) if folder in (each.info["cmdline"] or [])]
    assert len(still) == 2
    for process in still:
        process.suspend()
    try:
        time.sleep(32)
    finally:
        for process in still:
            process.resume()
    net.semifl("deploy", "stop", str(net.kits[OPERATOR].folder))
    out, _ = run.communicate(timeout=90)
    assert "late" in out
    assert "cannot be reached" not in out


@full
def test_a_killed_job_of_a_site_is_that_sites_trouble_alone(net):
    run = begin(net, "killed-job", run_table(rounds=60, client_epochs=10), deadline=10.0)
    net.wait_for_rounds("killed-job", 2)
    net.job_process("clinic-b").kill()
    net.wait_for_rounds("killed-job", 12)
    net.semifl("deploy", "stop", str(net.kits[OPERATOR].folder))
    out, _ = run.communicate(timeout=90)
    assert "restarted" not in out
    assert "cannot be reached" not in out
    records = net.records("killed-job")
    assert all(0 not in record["late"] + record["failed"] for record in records)  # clinic-a never noticed
    assert any(1 in record["late"] + record["failed"] for record in records)


@full
def test_a_second_operator_is_told_that_the_first_follows_the_run(net):
    table = run_table(rounds=200, client_epochs=5)
    run = begin(net, "two-operators", table, min_updates=2)
    net.wait_for_rounds("two-operators", 2)
    second = begin(net, "two-operators", table, min_updates=2)
    out, _ = second.communicate(timeout=60)
    assert second.returncode == 2, out
    assert "follows this run into" in " ".join(out.split())
    assert "Traceback" not in out
    net.semifl("deploy", "stop", str(net.kits[OPERATOR].folder))
    assert run.wait(timeout=60) == 1


@full
def test_a_killed_hub_leaves_no_gap_at_the_operators(net, pictures):
    """The operator stands still while rounds pass and the hub dies: the next job tells of those rounds."""
    run = begin(net, "gap", run_table(rounds=14, client_epochs=8), min_updates=2)
    net.wait_for_rounds("gap", 2)
    operator = psutil.Process(run.pid)
    operator.suspend()
    net.wait_for_rounds("gap", len(net.records("gap")) + 3)
    net.kill("hub")
    operator.resume()
    net.start("hub", "--data", str(pictures))
    out = end(run)
    told = [int(line.split()[1]) for line in out.splitlines() if line.startswith("round ") and " of 14: " in line]
    assert told == list(range(1, 15))
    assert lines(net.folder / "runs" / "gap") == lines(net.kits["hub"].runs / "gap")


@full
def test_a_round_without_enough_answers_is_repeated(net, pictures, tmp_path):
    table = run_table(rounds=8, client_epochs=20)
    run = begin(net, "repeated", table, deadline=3.0, min_updates=2, attempts=10)
    net.wait_for_rounds("repeated", 2)
    trainer = net.trainer("clinic-b")
    trainer.suspend()
    time.sleep(8)
    stuck = len(net.records("repeated"))
    trainer.resume()
    end(run)
    assert stuck < 8
    events = (net.kits["hub"].runs / "repeated" / "events.jsonl").read_text()
    assert '"late"' in events
    assert "no answer within" in events
    local = simulate(pictures, table, tmp_path / "local")
    same_bits(net.kits["hub"].runs / "repeated", local, without=("bytes_down",))  # who is asked twice is sent twice


@full
def test_stopped_and_continued(net, pictures, tmp_path):
    table = run_table(rounds=60, client_epochs=20)
    run = begin(net, "stopped", table, min_updates=2)
    net.wait_for_rounds("stopped", 2)
    status = net.semifl("deploy", "status", str(net.kits[OPERATOR].folder)).stdout
    assert "2 of 2 sites connected" in status
    assert "run stopped:" in status
    assert "clinic-a" in status
    assert "trained" in status
    net.semifl("deploy", "stop", str(net.kits[OPERATOR].folder))
    out, _ = run.communicate(timeout=60)
    assert run.returncode == 1
    assert "every complete round is kept" in out
    assert len(net.records("stopped")) < 60
    end(begin(net, "stopped", table, min_updates=2))
    same_bits(net.kits["hub"].runs / "stopped", simulate(pictures, table, tmp_path / "local"))


@full
def test_the_wire_carries_little_more_than_the_models(pictures, tmp_path):
    """Bytes of whole rounds as a proxy counts them, beside model × 2 × sites."""
    net = Net(tmp_path, SITES)
    try:
        net.provision()
        proxy = CountingProxy(net.port)
        net.dial_through(proxy)
        net.start_all(pictures)
        table = run_table(rounds=8, client_epochs=1, threshold=0.0)
        table["model"] = {"name": "wide_resnet", "depth": 28, "width": 2}
        passed = {}
        for precision in ("fp32", "fp16"):
            run = begin(net, precision, table, precision=precision)
            net.wait_for_rounds(precision, 2)
            before, first = proxy.bytes, len(net.records(precision))
            net.wait_for_rounds(precision, 7)
            passed[precision] = (proxy.bytes - before) / (len(net.records(precision)) - first)
            end(run)
            model = net.records(precision)[-1]["bytes_down"] / len(SITES)
            assert passed[precision] == pytest.approx(2 * len(SITES) * model, rel=0.05)
        assert net.records("fp32")[-1]["bytes_up"] == 2 * 4 * 1466707  # a WRN-28-2 for three classes
        assert passed["fp16"] == pytest.approx(passed["fp32"] / 2, rel=0.02)
    finally:
        net.close()


@full
@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({**run_table(), "method": {"name": "semifl", "treshold": 0.9}}, "did you mean 'threshold'"),
        ({**run_table(), "model": {"name": "os:system"}}, "a site runs what is built into semifl"),
        ({**run_table(), "method": {"name": "fedavg"}}, "needs the clients' labels"),
        ({**run_table(), "deploy": {"dedline": 3}}, "did you mean 'deadline'"),
        ({**run_table(), "data": {"name": "digits"}}, "folders of pictures"),
    ],
    ids=["unknown key", "code", "labels", "deploy", "data"],
)
def test_a_mistake_is_told_at_the_operators(net, table, sentence):
    run = begin(net, "mistake", table)
    out, _ = run.communicate(timeout=60)
    assert run.returncode == 2, out
    assert sentence in " ".join(out.split())
    assert "Traceback" not in out


@full
def test_what_only_sites_can_refuse_is_told_to_the_operator(net):
    cases = {
        "absurd-size": ({**run_table(), "data": {"size": 500}}, "limits.largest_picture"),
        "statistics": (run_table(statistics="cohort"), "share.statistics"),
    }
    for name, (table, sentence) in cases.items():
        out, _ = (run := begin(net, name, table)).communicate(timeout=90)
        assert run.returncode == 2, (name, out)
        assert sentence in " ".join(out.split()), (name, out)


@full
def test_a_job_tampered_with_is_refused_by_the_hub(net, tmp_path):
    """A job that no 'semifl deploy run' would submit."""
    line = HubLine(net.kits[OPERATOR])
    try:
        tables = {
            "tampered": {**run_table(), "method": {"name": "semifl", "treshold": 0.9}},
            "../startup": run_table(),  # with the hub's private key
        }
        for name, table in tables.items():
            folder = write_job(tmp_path / "jobs", "tampered", table, SITES, 1)
            config = folder / "app_hub" / "config" / "config_fed_server.json"
            config.write_text(config.read_text().replace('"name": "tampered"', json.dumps({"name": name})[1:-1], 1))
            job = line.submit(folder)
            end_by = time.monotonic() + 90
            while not line.status(job).startswith("FINISHED"):
                assert time.monotonic() < end_by
                time.sleep(0.5)
            found = next(line.fetch(job, tmp_path).rglob("outcome.json"))
            assert [path.name for path in found.parent.iterdir()] == ["outcome.json"]  # nothing else is handed over
            outcome = json.loads(found.read_text())
            assert outcome["state"] == "refused"
            assert ("treshold" if name == "tampered" else "is no name for a run") in outcome["reason"]
    finally:
        line.close()


@full
def test_a_site_whose_program_is_killed_does_not_train_on(net, pictures):
    """Only the program that its owner started is killed: what it had started must end by itself."""
    run = begin(net, "orphans", run_table(rounds=400, client_epochs=20), deadline=5.0)
    net.wait_for_rounds("orphans", 2)
    folder = str(net.kits["clinic-b"].engine)
    program = net.processes.pop("clinic-b")
    program.kill()
    program.wait()
    end_by = time.monotonic() + 20
    while any(folder in (each.info["cmdline"] or []) for each in psutil.process_iter(["cmdline"])):
        assert time.monotonic() < end_by, "the engine goes on without its program"
        time.sleep(0.5)
    net.semifl("deploy", "stop", str(net.kits[OPERATOR].folder))
    assert run.wait(timeout=60) == 1
    net.start("clinic-b", "--data", str(pictures / "clients" / "clinic-b"))

"""A pool on a Dask cluster of processes on loopback: the same results, whoever dies, joins late or does not fit."""

import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import backbones
import jobs
from dask_net import DaskNet
from faults.harness import FULL, assert_same, events
from semifl.configuration.clusters import find_cluster
from semifl.configuration.config import decode
from semifl.errors import RunStopped, UserError
from semifl.federation.cluster.address import Cluster, whole_address
from semifl.federation.cluster.pool import ClusterPool
from semifl.federation.cluster.team import connect
from semifl.federation.cluster.worker import forget
from semifl.federation.workers import JobFailed, Log
from semifl.running.context import Silent
from semifl.running.loop import resume, start
from toys import KEPT, toy_table

PLACE = {"offset": torch.tensor([0.5, -0.5])}
OTHER_VERSION = "import semifl; semifl.__version__ = '9.9'\n"


class News:
    """What a pool tells."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.warnings: list[str] = []

    @property
    def log(self) -> Log:
        return Log(lambda event, **facts: self.events.append((event, facts)), self.warnings.append)

    def kinds(self) -> list[str]:
        return [event for event, _ in self.events]


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskNet]:
    """Two workers that all tests share; one that kills a worker adds another."""
    with DaskNet(tmp_path_factory.mktemp("dask")) as running:
        running.start(2)
        yield running


@pytest.fixture
def open_pool(net: DaskNet) -> Iterator[Callable[..., ClusterPool]]:
    pools = []

    def opened(news: News, place: Any = PLACE, workers: int = 2) -> ClusterPool:
        pools.append(ClusterPool(place, Cluster(net.address, net.address), news.log))
        until(lambda: len(pools[-1].workers()) >= workers)
        return pools[-1]

    yield opened
    for pool in pools:
        pool.close()


def until(true: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.05)


def test_results_come_in_order_and_a_job_that_raises_names_its_worker(net: DaskNet, open_pool: Any) -> None:
    pool = open_pool(News())
    items = [(f"item {n}", torch.arange(2.0) + n) for n in range(12)]

    results = list(pool.run(jobs.scaled, {"factor": torch.tensor(3.0)}, items))
    assert [result["values"].tolist() for result in results] == [[3 * n + 0.5, 3 * (n + 1) - 0.5] for n in range(12)]

    *good, bad = list(pool.run(jobs.fails_at, 4, range(5)))
    assert good == [0, 10, 20, 30]
    assert isinstance(bad, JobFailed)
    assert re.match(r"ValueError: item 4 is bad \(.*jobs\.py:\d+\) \(on worker tcp://127\.0\.0\.1:\d+\)$", bad.reason)

    (full,) = pool.run(jobs.full_disk, None, [0])  # the federation tells it from a fault of the client by the number
    assert full.errno == 28
    assert full.reason.startswith("OSError: [Errno 28] No space left on device: '/scratch/features' (")

    large = [torch.full((400_000,), float(n)) for n in range(3)]  # 1.6 MB each: not by way of the scheduler
    assert [torch.equal(a, b) for a, b in zip(pool.run(jobs.echo, None, large), large, strict=True)] == [True] * 3
    assert {count for count, _ in pool.run(jobs.threads_and_pid, None, range(4))} == {1}


def test_a_worker_that_has_lost_the_place_is_given_it_again(open_pool: Any) -> None:
    news = News()
    pool = open_pool(news)
    news.warnings.clear()
    pool._team.client.run(forget, pool._name)
    (result,) = pool.run(jobs.scaled, {"factor": torch.tensor(2.0)}, [("one", torch.ones(2))])
    assert result["values"].tolist() == [2.5, 1.5]
    assert news.warnings == []


def test_jobs_of_a_killed_worker_are_done_by_others_also_by_one_that_joins_late(
    net: DaskNet, open_pool: Any, tmp_path: Path
) -> None:
    news = News()
    pool = open_pool(news)
    found: list[Any] = []
    running = threading.Thread(target=lambda: found.extend(pool.run(jobs.waits_for, str(tmp_path), range(6))))
    running.start()
    until(lambda: len(list(tmp_path.glob("begun-*"))) == 2)
    first, second = net.workers
    net.kill(first)
    until(lambda: news.kinds().count("worker lost") == 1)
    net.kill(second)  # now nobody holds the message any more
    late = net.add_worker()
    net.add_worker()
    (tmp_path / "go").touch()
    running.join(timeout=60)

    assert [item for item, _ in found] == list(range(6))
    assert late.pid in {pid for _, pid in found}
    assert news.kinds().count("worker lost") == 2


def test_a_worker_of_another_version_gets_no_work_and_the_others_go_on(
    net: DaskNet, open_pool: Any, tmp_path: Path
) -> None:
    preload = tmp_path / "other_version.py"
    preload.write_text(OTHER_VERSION)
    other = net.add_worker("--preload", preload)
    news = News()
    pool = open_pool(news)
    until(lambda: pool.workers() is not None and "worker refused" in news.kinds())

    pids = {pid for _, pid in pool.run(jobs.threads_and_pid, None, range(8))}
    assert other.pid not in pids
    (sentence,) = [each for each in news.warnings if "gets no work" in each]
    assert "semifl is 9.9 there and 0.1.0 here; install the same there" in sentence
    net.kill(other)


def test_a_worker_without_the_data_is_told_what_to_put_where(net: DaskNet, open_pool: Any, tmp_path: Path) -> None:
    pictures = tmp_path / "pictures.bin"
    pool = open_pool(News(), jobs.NeedsFile(str(pictures)), workers=0)
    with pytest.raises(UserError, match=f"cannot open {pictures}: No such file or directory; put the file there"):
        list(pool.run(jobs.echo, None, range(2)))


class Strike(Silent):
    """Does something after a round."""

    def __init__(self, after: int, action: Callable[[], object]) -> None:
        self.after, self.action = after, action

    def round(self, record: Any, best: float) -> None:
        if record["round"] == self.after:
            self.action()


@pytest.mark.skipif(not FULL, reason="a network of 16 layers twice: SEMIFL_FAULTS=full")
def test_a_run_with_frozen_features_has_the_same_bits_there(net: DaskNet, tmp_path: Path) -> None:
    model = {"name": "pretrained", "source": str(backbones.lite(tmp_path / "lite")), "size": 32, "views": 1}
    table = {**toy_table(), "rounds": 1, "labels_only": False, "model": model}
    start(decode(table), tmp_path / "here")
    start(decode(table), tmp_path / "there", Cluster(net.address, net.address))
    assert_same(tmp_path / "there", tmp_path / "here")


def test_stacked_clients_have_the_same_bits_there(net: DaskNet, tmp_path: Path) -> None:
    table = {**toy_table(**KEPT, activity_rate=1.0), "model": {"name": "cnn", "width": 4}, "stack": 3}
    table |= {"rounds": 2, "labels_only": False}
    start(decode(table), tmp_path / "here")
    start(decode(table), tmp_path / "there", Cluster(net.address, net.address))
    assert_same(tmp_path / "there", tmp_path / "here")


def test_a_run_has_the_same_bits_there_and_survives_the_loss_of_a_worker_and_of_the_scheduler(
    net: DaskNet, tmp_path: Path
) -> None:
    """The method keeps momentum at its clients, which lives with the run and not on a worker's disk."""
    table = {**toy_table(**KEPT), "rounds": 4}
    cluster = Cluster(net.address, net.address)
    start(decode(table), tmp_path / "here")
    start(decode(table), tmp_path / "there", cluster, observer=Strike(2, lambda: net.kill(net.workers[0])))
    assert_same(tmp_path / "there", tmp_path / "here")
    memory = [sorted(each.rglob("memory/*/*")) for each in (tmp_path / "here", tmp_path / "there")]
    assert [path.name for path in memory[0]] == [path.name for path in memory[1]] != []
    assert "worker joined" in events(tmp_path / "there")

    assert net.scheduler is not None
    lost = Strike(2, lambda: net.kill(net.scheduler))
    with pytest.raises(RunStopped, match=f"the scheduler {net.address} is gone: start it and its workers again"):
        start(decode(table), tmp_path / "lost", cluster, observer=lost)
    for worker in list(net.workers):
        net.kill(worker)
    net.start(1)
    resume(tmp_path / "lost", Cluster(net.address, net.address))
    assert_same(tmp_path / "lost", tmp_path / "here")


def test_a_scheduler_that_is_not_there_is_told_before_a_run_begins(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("semifl.federation.cluster.team.CONNECT", 0.2)
    with pytest.raises(UserError, match=r"no Dask scheduler answers at tcp://127\.0\.0\.1:1 "):
        start(decode(toy_table()), tmp_path / "run", Cluster("tcp://127.0.0.1:1", "tcp://127.0.0.1:1"))
    assert not (tmp_path / "run").exists()


def test_a_cluster_with_tls_is_reached_by_its_file_alone(tmp_path: Path, monkeypatch: Any) -> None:
    cert, key = own_authority(tmp_path)
    tls = ["--protocol", "tls", "--tls-ca-file", cert, "--tls-cert", cert, "--tls-key", key]
    with DaskNet(tmp_path, options=tls) as net:
        address = net.start(1)
        assert address.startswith("tls://127.0.0.1:")
        (tmp_path / "cluster.toml").write_text(
            f'scheduler = "{address}"\ndirect = false\n[tls]\nca = "cert.pem"\ncert = "cert.pem"\nkey = "key.pem"\n'
        )
        pool = ClusterPool(PLACE, find_cluster(str(tmp_path / "cluster.toml"), "cpu"), News().log)
        assert list(pool.run(jobs.fails_at, -1, range(3))) == [0, 10, 20]
        pool.close()
        monkeypatch.setattr("semifl.federation.cluster.team.CONNECT", 2)
        with pytest.raises(UserError, match="no Dask scheduler answers at tls://"):
            connect(Cluster(address, address))


def own_authority(folder: Path) -> tuple[Path, Path]:
    """A certificate that vouches for itself, as docs/cluster.md makes one."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    words = f"req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=cluster -keyout {key} -out {cert}"
    subprocess.run(["openssl", *words.split()], check=True, capture_output=True)
    return cert, key


@pytest.mark.parametrize(
    ("typed", "whole"),
    [
        ("head", "tcp://head:8786"),
        ("127.0.0.1:9000", "tcp://127.0.0.1:9000"),
        ("tls://head.example:1", "tls://head.example:1"),
        ("tcp://[::1]:5", "tcp://[::1]:5"),
    ],
)
def test_addresses(typed: str, whole: str) -> None:
    assert whole_address(typed) == whole


@pytest.mark.parametrize("typed", ["http://head", "tcp://", "tcp://head:port", "two words", "tcp://head:1/path"])
def test_what_is_no_address(typed: str) -> None:
    with pytest.raises(UserError, match="is not the address of a scheduler"):
        whole_address(typed)


@pytest.mark.parametrize(
    ("address", "warned"),
    [
        ("tcp://127.0.0.1:8786", False),
        ("tcp://localhost:8786", False),
        ("tcp://[::1]:8786", False),
        ("tls://head:8786", False),
        ("tcp://head:8786", True),
        ("tcp://10.0.0.7:8786", True),
    ],
)
def test_an_open_scheduler_beyond_this_machine_is_warned_of(address: str, warned: bool) -> None:
    assert ("has no TLS" in Cluster(address, address).warning()) is warned

"""Workers of a Dask cluster killed at random moments: the same bits, and no round is lost."""

import random
import threading
import time
from pathlib import Path

import pytest

from dask_net import DaskNet
from faults.harness import FULL, assert_same, events, records, table
from semifl.configuration.config import decode
from semifl.federation.cluster.address import Cluster
from semifl.running.loop import start

KILLS, ROUNDS = 10, 40  # a new worker takes as long as a few rounds on an idle machine

pytestmark = pytest.mark.skipif(not FULL, reason="ten kills and as many new workers take minutes: SEMIFL_FAULTS=full")


def lines(directory: Path) -> int:
    path = directory / "rounds.jsonl"
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_ten_workers_killed_during_a_run_leave_its_bits_alone(tmp_path: Path) -> None:
    config, directory, chance = decode(table("paper", ROUNDS)), tmp_path / "there", random.Random(0)
    start(config, tmp_path / "here")
    with DaskNet(tmp_path) as net:
        net.start(3)
        killed: list[int] = []

        def strike() -> None:
            """One in each round, at a random moment of it; another joins."""
            while len(killed) < KILLS and lines(directory) < ROUNDS:
                if lines(directory) <= len(killed):
                    time.sleep(0.01)
                    continue
                time.sleep(chance.uniform(0, 1.0))
                victim = chance.choice(net.workers)
                net.add_worker()
                net.kill(victim)
                killed.append(lines(directory))

        striker = threading.Thread(target=strike)
        striker.start()
        start(config, directory, Cluster(net.address, net.address))
        striker.join(timeout=60)
    assert len(killed) == KILLS, f"only {killed}"
    assert_same(directory, tmp_path / "here")
    assert [record["round"] for record in records(directory)] == list(range(1, ROUNDS + 1))
    assert "resumed" not in events(directory)
    print(f"kills: {len(killed)}, workers lost: {events(directory).count('worker lost')}")

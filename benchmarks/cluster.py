"""What a round costs on a Dask cluster in which training is free: 1.5 M parameters to 10 clients, two workers.

Scheduler and workers are processes on loopback. Compared in the same run, round about, with two worker processes of the
ordinary pool.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import psutil
from measure import Bench, build_wide_resnet, federation, report
from plain_methods import Nothing

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from dask_net import DaskNet
from semifl.federation.cluster.address import Cluster
from semifl.federation.cluster.pool import ClusterPool
from semifl.federation.workers import Log

CLIENTS, CORES, ROUNDS = 10, 2, 25


def processor_seconds(pids: list[int]) -> float:
    """Of this process and these: what a round costs however busy the machine is."""
    times = [psutil.Process(pid).cpu_times() for pid in pids]
    return time.process_time() + sum(each.user + each.system for each in times)


def main() -> None:
    build = partial(build_wide_resnet, 28, 2, 32)
    method = Nothing()
    with tempfile.TemporaryDirectory() as folder, DaskNet(Path(folder), paths=[Path(__file__).parent]) as net:
        cluster = Cluster(net.start(CORES), "loopback")
        with federation(build, 32, CLIENTS, 10, CORES, labeled=10, test=10) as bench:
            state = bench.place.network.weights()
            pool = ClusterPool(bench.place, cluster, Log(lambda event, **facts: None, lambda sentence: None))
            while len(pool.workers()) < CORES:
                time.sleep(0.1)
            sides: dict[str, Bench] = {"processes": bench, "cluster": bench._replace(pool=pool)}
            took: dict[str, list[float]] = {name: [] for name in sides}
            busy = dict.fromkeys(sides, 0.0)
            tested: list[float] = []  # by worker processes on both sides: no part of what a cluster costs
            everybody = [*net.pids(), *bench.pool.pids()]
            for _ in range(ROUNDS):
                for name, side in sides.items():
                    began, before = time.perf_counter(), processor_seconds(everybody)
                    side.run_round(method, state, 1)
                    took[name].append(1000 * (time.perf_counter() - began))
                    tested.append(1000 * side.tally.seconds["test"])
                    busy[name] += 1000 * (processor_seconds(everybody) - before) / ROUNDS
            pool.close()
    middle = {name: statistics.median(each) for name, each in took.items()}
    report(
        "cluster",
        "10 clients, 1.5 M parameters, nothing trained, 2 Dask workers on loopback",
        ratio=middle["cluster"] / middle["processes"],
        compared_with="two worker processes of the ordinary pool",
        **{f"milliseconds_{name}": each for name, each in middle.items()},
        **{f"best_milliseconds_{name}": min(each) for name, each in took.items()},
        milliseconds_of_it_testing=statistics.median(tested),
        **{f"processor_milliseconds_{name}": each for name, each in busy.items()},
    )


if __name__ == "__main__":
    main()

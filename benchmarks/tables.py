"""Some cells of `table paper --scale tiny` on two Dask workers, against two runs side by side (`--jobs 2`).

Every eighth cell with one seed and 6 rounds instead of 20; one side after the other. A worker has imported what a run
needs, a run side by side begins as a new process, and weighs the more the shorter runs are. Scheduler and workers are
started before the clock is.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from measure import report

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from dask_net import DaskNet
from semifl.federation.cluster.address import Cluster
from semifl.federation.workers import Log
from semifl.studies.cluster_runs import fill_on
from semifl.studies.table_runs import fill
from semifl.studies.tables import paper_tables

EVERY, CORES, LAPS, ROUNDS = 8, 2, 1, 6
SILENT = Log(lambda event, **facts: None, lambda sentence: None)


def seconds(outcomes: Callable[[Path], Iterator[Any]]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        for done in outcomes(Path(folder)):
            if done.failed:
                raise SystemExit(f"{done.cell.name}: {done.text}")
        return time.perf_counter() - began


def main() -> None:
    cells = {cell.name: cell for table in paper_tables("tiny", [f"rounds={ROUNDS}"]) for cell in table.cells}
    todo = [(cell, 0) for cell in list(cells.values())[::EVERY]]
    with tempfile.TemporaryDirectory() as folder, DaskNet(Path(folder)) as net:
        cluster = Cluster(net.start(CORES), "loopback")
        sides: dict[str, Callable[[Path], Iterator[Any]]] = {
            "jobs": lambda runs: fill(todo, runs, CORES, 1, "cpu"),
            "cluster": lambda runs: fill_on(cluster, todo, runs, SILENT),
        }
        took: dict[str, list[float]] = {name: [] for name in sides}
        for _ in range(LAPS):
            for name, side in sides.items():
                took[name].append(seconds(side))
    middle = {name: statistics.median(each) for name, each in took.items()}
    report(
        "tables",
        f"{len(todo)} of {len(cells)} cells of table paper --scale tiny, {ROUNDS} rounds, 2 Dask workers on loopback",
        ratio=middle["cluster"] / middle["jobs"],
        compared_with="--jobs 2",
        **{f"seconds_{name}": each for name, each in middle.items()},
    )


if __name__ == "__main__":
    main()

"""Seconds and peak memory per round as clients and cohorts grow; each case in a process of its own.

The work per client is tiny (10 pictures of 8×8, one epoch of two steps), so that what is measured is the machinery.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from functools import partial
from pathlib import Path

from measure import build_wide_resnet, federation, report, seconds

from semifl.methods.semifl import SemiFL

CLIENT_COUNTS = (1_000, 100, 10_000, 100_000, 1_000_000)  # the first is what the others are compared with
COHORTS = (10, 100, 1_000)
FIXED_CLIENTS, FIXED_COHORT, PER_CLIENT, CORES = 1_000, 10, 10, 2


def one(clients: int, cohort: int) -> dict[str, float]:
    """Seconds of a round, median and best, and peak memory of this process in those rounds beyond pictures and labels.

    The table of who holds what is told apart: 8 bytes for each picture and each client.
    """
    build = partial(build_wide_resnet, 10, 1, 8)
    rate = cohort / clients
    method = SemiFL(threshold=0.0, activity_rate=rate, client_epochs=1, server_epochs=1)
    with federation(build, 8, clients, PER_CLIENT, CORES, labeled=30, test=10) as bench:
        state = method.start(bench.place.network.weights())
        for index in range(3):  # warm up
            bench.run_round(method, state, index)
        Path("/proc/self/clear_refs").write_text("5")  # Linux: forget the peak of setting up
        repeats = 7 if cohort < 1000 else 3
        took = [seconds(lambda: bench.run_round(method, state, 9), 1) for _ in range(repeats)]
        data = bench.place.images.nbytes + bench.place.hidden_labels.nbytes
        table = bench.place.holdings.order.nbytes + bench.place.holdings.offsets.nbytes
        status = Path("/proc/self/status").read_text()
    own = 1024 * int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
    return {
        "seconds": statistics.median(took),
        "best_seconds": min(took),
        "memory_megabytes": (own - data) / 1e6,
        "table_megabytes": table / 1e6,
        "data_megabytes": data / 1e6,
    }


def apart(clients: int, cohort: int) -> dict[str, float]:
    command = [sys.executable, __file__, str(clients), str(cohort)]
    return dict(json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout))


def main() -> None:
    if len(sys.argv) == 3:
        print(json.dumps(one(int(sys.argv[1]), int(sys.argv[2]))))
        return
    base = None
    for clients in CLIENT_COUNTS:
        got = apart(clients, FIXED_COHORT)
        base = base or got
        report(
            "scale",
            f"{clients} clients, cohort {FIXED_COHORT}",
            ratio=got["seconds"] / base["seconds"],
            compared_with=f"{CLIENT_COUNTS[0]} clients, the same cohort",
            memory_ratio=got["memory_megabytes"] / base["memory_megabytes"],
            **got,
        )
    base = None
    for cohort in COHORTS:
        got = apart(FIXED_CLIENTS, cohort)
        base = base or got
        report(
            "scale",
            f"{FIXED_CLIENTS} clients, cohort {cohort}",
            ratio=got["seconds"] / cohort / (base["seconds"] / COHORTS[0]),
            compared_with=f"seconds per client in a cohort of {COHORTS[0]}",
            memory_ratio=got["memory_megabytes"] / base["memory_megabytes"],
            **got,
        )


if __name__ == "__main__":
    main()

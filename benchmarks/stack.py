"""Clients one by one against clients stacked by `torch.func`, in one process with one thread.

What stacking is for, a device that waits for kernels to be launched, is not measured on a CPU; what it costs there is.
"""

from __future__ import annotations

import statistics
import time
from functools import partial

from measure import build_wide_resnet, federation, report

from semifl.federation.local import LocalFederation
from semifl.federation.world import Round
from semifl.learning.weights import Snapshot
from semifl.methods.semifl import SemiFL
from semifl.randomness import Seed

STACKS, CLIENTS, LAPS = (1, 2, 4), 4, 3
CASES = {"WRN-10-1 8×8": (10, 1, 8, 40), "WRN-10-1 32×32": (10, 1, 32, 40)}  # depth, width, pixels, pictures a client


def main() -> None:
    method = SemiFL(threshold=0.0, client_epochs=1)
    t = Round(1, 0.0, Seed(0).under("round", 1))
    for case, (depth, width, size, pictures) in CASES.items():
        build = partial(build_wide_resnet, depth, width, size)
        with federation(build, size, CLIENTS, pictures, workers=1, labeled=10) as bench:
            weights = bench.place.network.weights()
            model = Snapshot(weights, bench.server.statistics(weights))
            took: dict[int, list[float]] = {stack: [] for stack in STACKS}
            for _ in range(LAPS + 1):  # the first warms up
                for stack in STACKS:
                    clients = LocalFederation(bench.pool, CLIENTS, method, bench.tally, stack=stack)
                    began = time.perf_counter()
                    for _reply in clients.each(tuple(range(CLIENTS)), model, t):
                        pass
                    took[stack].append(time.perf_counter() - began)
        middle = {stack: statistics.median(each[1:]) for stack, each in took.items()}
        for stack in STACKS[1:]:
            report(
                "stack",
                f"{case}, stack {stack}",
                ratio=middle[stack] / middle[1],
                compared_with="one by one",
                seconds=middle[stack],
            )


if __name__ == "__main__":
    main()

"""What a checkpoint costs beside the round it protects, and how large it is beside the State.

With the memories of many clients, which it is bound to by a table of their digests, it must cost hardly more.
"""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from measure import build_wide_resnet, federation, report, seconds

from semifl.federation.memory import ClientMemory, Kept
from semifl.federation.tally import tensor_bytes
from semifl.methods.semifl import SemiFL
from semifl.running.binding import Bound
from semifl.running.checkpoint import Checkpoints

CLIENTS = 100_000
CASES = {"WRN-28-2 32×32": (28, 2, 32), "WRN-10-1 32×32": (10, 1, 32), "WRN-10-1 8×8": (10, 1, 8)}


def measure(case: str, depth: int, width: int, size: int) -> None:
    method = SemiFL(threshold=0.0)
    build = partial(build_wide_resnet, depth, width, size)
    with federation(build, size, 20, 100, 2) as bench, TemporaryDirectory() as folder:
        state = bench.run_round(method, method.start(bench.place.network.weights()), 1)
        began = time.perf_counter()
        state = bench.run_round(method, state, 2)
        one_round = time.perf_counter() - began
        checkpoints = Checkpoints(Path(folder))
        rounds = iter(range(100))
        bound = Bound("{}")
        cost = seconds(lambda: checkpoints.save(next(rounds), state, bound), 5)
        on_disk = sum(path.stat().st_size for path in Path(folder).iterdir())
        many = bound._replace(memory=Kept.nothing().with_round(1, {client: client for client in range(CLIENTS)}))
        cost_of_many = seconds(lambda: checkpoints.save(next(rounds), state, many), 5)
    report(
        "checkpoint",
        case,
        ratio=cost / one_round,
        compared_with="the round before it (2 clients × 100 pictures, E = 5)",
        milliseconds=1000 * cost,
        size_ratio=on_disk / tensor_bytes(state),
        milliseconds_with_the_memories_of_100000_clients=1000 * cost_of_many,
    )


def note() -> None:
    """The table after a round of ten clients, with the files of few and of many others beside theirs."""
    for others in (10, 2000):
        with TemporaryDirectory() as folder:
            memory = ClientMemory(Path(folder))
            for client in range(others):
                memory.write(client, 1, {"momentum": torch.zeros(1000)})
            kept = memory.note(Kept.nothing(), range(others), 1)
            for client in range(10):
                memory.write(client, 2, {"momentum": torch.ones(1000)})
            cost = seconds(partial(memory.note, kept, range(10), 2), 5)
            report("checkpoint", f"table of {others} memories", milliseconds=1000 * cost)


def main() -> None:
    for case, settings in CASES.items():
        measure(case, *settings)
    note()


if __name__ == "__main__":
    main()

"""What a checkpoint costs beside the round it protects, and how large it is beside the State."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from measure import build_wide_resnet, federation, report, seconds

from semifl.experiments.checkpoint import Checkpoints
from semifl.federation.tally import tensor_bytes
from semifl.methods.semifl import SemiFL

CASES = {"WRN-28-2 32×32": (28, 2, 32), "WRN-10-1 32×32": (10, 1, 32), "WRN-10-1 8×8": (10, 1, 8)}


def measure(case: str, depth: int, width: int, size: int) -> None:
    method = SemiFL(threshold=0.0)
    build = partial(build_wide_resnet, depth, width, size)
    with federation(build, size, 20, 100, 2) as bench, TemporaryDirectory() as folder:
        state = bench.play(method, method.start(bench.place.network.weights()), 1)
        began = time.perf_counter()
        state = bench.play(method, state, 2)
        one_round = time.perf_counter() - began
        checkpoints = Checkpoints(Path(folder))
        rounds = iter(range(100))
        cost = seconds(lambda: checkpoints.save(next(rounds), state), 5)
        on_disk = sum(path.stat().st_size for path in Path(folder).iterdir())
    report(
        "checkpoint",
        case,
        ratio=cost / one_round,
        compared_with="the round before it (2 clients × 100 pictures, E = 5)",
        milliseconds=1000 * cost,
        size_ratio=on_disk / tensor_bytes(state),
    )


def main() -> None:
    for case, settings in CASES.items():
        measure(case, *settings)


if __name__ == "__main__":
    main()

"""A full SemiFL round as a share of the machine's matrix-multiply peak, beside bare training steps, and bf16's gain.

250 labels, 2 clients × 100 pictures, E = 5, everything confident, sBN over 2,250 pictures, 500 test pictures.
The same round in bf16 is played only where hardware is fast at it; elsewhere a few bare steps say how slow it is.
"""

from __future__ import annotations

import time
from functools import partial

from measure import bare_share, build_wide_resnet, federation, flops, matmul_peak, report, step_seconds
from torch import nn

from semifl.learning.precision import has_fast_bf16
from semifl.methods.semifl import SemiFL

LABELED, CLIENTS, PER_CLIENT, TEST, EPOCHS, CORES = 250, 20, 100, 500, 5, 2
CASES = {"WRN-28-2 32×32": (28, 2, 32, 1), "WRN-10-1 32×32": (10, 1, 32, 3), "WRN-10-1 8×8": (10, 1, 8, 3)}


def necessary(inference: float, training: float) -> dict[str, float]:
    """FLOPs by phase; sBN is counted once, a client step has a strong and a mixed view."""
    cohort = CLIENTS // 10
    return {
        "server": LABELED * EPOCHS * training,
        "clients": cohort * PER_CLIENT * (inference + EPOCHS * 2 * training),
        "statistics": (LABELED + CLIENTS * PER_CLIENT) * inference,
        "test": TEST * inference,
    }


def measure(case: str, depth: int, width: int, size: int, rounds: int) -> None:
    build = partial(build_wide_resnet, depth, width, size)
    inference, training = flops(build(), 3, size)
    needed = necessary(inference, training)
    method = SemiFL(threshold=0.0, statistics="all", clip_norm=1.0)
    with federation(build, size, CLIENTS, PER_CLIENT, CORES, LABELED, TEST) as bench:
        state = bench.run_round(method, method.start(bench.place.network.weights()), 1)  # warm up
        peak = matmul_peak(CORES)
        began = time.perf_counter()
        phases: dict[str, float] = {}
        for index in range(2, 2 + rounds):
            state = bench.run_round(method, state, index)
            for name, spent in bench.tally.seconds.items():
                phases[name] = phases.get(name, 0.0) + spent / rounds
        took = (time.perf_counter() - began) / rounds
        peak = (peak + matmul_peak(CORES)) / 2
    shares = {f"share_{name}": needed[name] / (spent * peak) for name, spent in phases.items()}
    report(
        "round",
        case,
        ratio=sum(needed.values()) / (took * peak),
        compared_with="matrix-multiply peak of the same cores, before and after",
        seconds=took,
        tera_flop=sum(needed.values()) / 1e12,
        peak_gflops=peak / 1e9,
        bare_steps_one_thread=bare_share(build, size, 1, training),
        bare_steps_all_threads=bare_share(build, size, CORES, training),
        **shares,
    )
    compare_precisions(case, build, size, took)


def compare_precisions(case: str, build: partial[nn.Module], size: int, took: float) -> None:
    """How many times faster bf16 is; below 1 it is slower. `took` is a whole round in fp32."""
    steps = {precision: step_seconds(build, size, 1, precision, repeats=3) for precision in ("fp32", "bf16")}
    facts = {"fp32_step": steps["fp32"], "bf16_step": steps["bf16"], "of_steps": steps["fp32"] / steps["bf16"]}
    if not has_fast_bf16("cpu"):
        report("precision", case, ratio=None, compared_with="no fast bf16 here: only bare steps were measured", **facts)
        return
    method = SemiFL(threshold=0.0, statistics="all", clip_norm=1.0)
    with federation(build, size, CLIENTS, PER_CLIENT, CORES, LABELED, TEST, "bf16") as bench:
        state = bench.run_round(method, method.start(bench.place.network.weights()), 1)
        began = time.perf_counter()
        bench.run_round(method, state, 2)
        ratio = took / (time.perf_counter() - began)
    report("precision", case, ratio=ratio, compared_with="the same round in fp32", **facts)


def main() -> None:
    for case, settings in CASES.items():
        measure(case, *settings)


if __name__ == "__main__":
    main()

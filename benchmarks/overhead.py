"""What a round costs in which training is free: 1.5 M parameters to 10 clients, nothing trained, averaged.

Compared in the same run with two processes and a pickle queue, and with a plain loop that copies and averages.
"""

from __future__ import annotations

import copy
import multiprocessing
from functools import partial
from typing import Any

import torch
from measure import build_wide_resnet, federation, report, seconds
from plain_methods import Nothing
from torch import Tensor

from semifl.learning.weights import Weights

CLIENTS, CORES = 10, 2


def plain_loop(weights: Weights) -> Weights:
    """Send by deep copy, average over a list: what simulators in one process do."""
    received = [copy.deepcopy(weights) for _ in range(CLIENTS)]
    return {name: torch.stack([each[name] for each in received]).mean(dim=0) for name in weights}


def echo(tasks: Any, results: Any) -> None:
    while (task := tasks.get()) is not None:
        results.put(task)


def queue_round(tasks: Any, results: Any, weights: dict[str, Any]) -> dict[str, Any]:
    for _ in range(CLIENTS):
        tasks.put(weights)
    received = [results.get() for _ in range(CLIENTS)]
    return {name: sum(each[name] for each in received) / CLIENTS for name in weights}


def main() -> None:
    build = partial(build_wide_resnet, 28, 2, 32)
    method = Nothing()
    context = multiprocessing.get_context("spawn")
    tasks, results = context.Queue(), context.Queue()
    team = [context.Process(target=echo, args=(tasks, results), daemon=True) for _ in range(CORES)]
    for process in team:
        process.start()
    with federation(build, 32, CLIENTS, 10, CORES, labeled=10, test=10) as bench:
        state: dict[str, Tensor] = bench.place.network.weights()
        arrays = {name: tensor.numpy() for name, tensor in state.items()}
        sides = {
            "ours": lambda: bench.run_round(method, state, 1),
            "plain_loop": lambda: plain_loop(state),
            "pickle_queue": lambda: queue_round(tasks, results, arrays),
        }
        for work in sides.values():
            work()
        times = {name: seconds(work, 11) for name, work in sides.items()}
    for _ in team:
        tasks.put(None)
    for process in team:
        process.join()
    report(
        "overhead",
        "10 clients, 1.5 M parameters, nothing trained",
        ratio=times["pickle_queue"] / times["ours"],
        compared_with="two processes with a pickle queue; a plain loop with deep copies",
        **{f"milliseconds_{name}": 1000 * value for name, value in times.items()},
    )


if __name__ == "__main__":
    main()

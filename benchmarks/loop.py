"""FedAvg rounds against a bare PyTorch loop in one process with all threads, which is what the best simulator reaches.

WRN-10-1 at 32×32, 10 clients × 100 pictures, batch 10, one epoch. Both sides do the same steps on the same pictures.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from measure import Bench, build_wide_resnet, federation, report, seconds
from plain_methods import BATCH, LR, MOMENTUM, PlainFedAvg, fake_labels
from torch import Tensor

from semifl.data.augment import normalize
from semifl.federation.workers import threads

SIZE, CLIENTS, PER_CLIENT, CORES = 32, 10, 100, 2


def bare_round(bench: Bench, module: Any, start: dict[str, Tensor]) -> dict[str, Tensor]:
    """The same round as anyone would write it: one model, one optimiser per client, a dictionary of sums."""
    total: dict[str, Tensor] = {}
    for client in range(CLIENTS):
        images = normalize(bench.place.images[bench.place.holdings[client]], bench.place.facts)
        labels = fake_labels(len(images))
        module.load_state_dict(start)
        optimizer = torch.optim.SGD(module.parameters(), lr=LR, momentum=MOMENTUM)
        for first in range(0, len(images), BATCH):
            optimizer.zero_grad()
            F.cross_entropy(module(images[first : first + BATCH]), labels[first : first + BATCH]).backward()
            optimizer.step()
        for name, tensor in module.state_dict().items():
            total[name] = total[name] + tensor / CLIENTS if name in total else tensor / CLIENTS
    return total


def main() -> None:
    build = partial(build_wide_resnet, 10, 1, SIZE)
    method = PlainFedAvg()
    module = build().to(memory_format=torch.channels_last)
    first = copy.deepcopy(module.state_dict())
    with federation(build, SIZE, CLIENTS, PER_CLIENT, CORES, labeled=10, test=10) as bench:
        state = method.start(bench.place.network.weights())
        bench.run_round(method, state, 1)
        bare_round(bench, module, first)
        ours, bare = [], []
        for index in range(2, 7):  # interleaved, so that both meet the same neighbours
            ours.append(seconds(lambda index=index: bench.run_round(method, state, index), 1))
            with threads(CORES):
                bare.append(seconds(lambda: bare_round(bench, module, first), 1))
    mine, theirs = sorted(ours)[2], sorted(bare)[2]
    report(
        "loop",
        "FedAvg, WRN-10-1 32×32, 10 clients × 100",
        ratio=theirs / mine,
        compared_with="a bare PyTorch loop in one process with all threads, channels-last",
        seconds=mine,
        bare_seconds=theirs,
    )


if __name__ == "__main__":
    main()

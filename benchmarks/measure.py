"""What the benchmarks share: a federation over random pictures, the matrix-multiply peak, FLOPs, JSON lines."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from semifl.data.dataset import Facts
from semifl.data.partition import Holdings
from semifl.federation.local import LocalFederation
from semifl.federation.sites import Place, ServerSite
from semifl.federation.tally import Tally
from semifl.federation.workers import Here, Pool, Workers, threads
from semifl.federation.world import Round
from semifl.learning.network import Network
from semifl.learning.precision import Precision
from semifl.learning.training import SGD
from semifl.models.wide_resnet import WideResNet
from semifl.randomness import Seed

CLASSES = tuple("0123456789")


def report(benchmark: str, case: str, **facts: Any) -> None:
    """One JSON line."""
    rounded = {key: round(value, 4) if isinstance(value, float) else value for key, value in facts.items()}
    print(json.dumps({"benchmark": benchmark, "case": case, **rounded}), flush=True)


def seconds(work: Callable[[], Any], repeats: int = 3) -> float:
    """The median of a few runs."""
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def matmul_peak(threads: int, size: int = 2048) -> float:
    """FLOP/s of the best of several large matrix products: what this machine can do at all, now."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    a, b = torch.randn(size, size), torch.randn(size, size)
    times = []
    for _ in range(12):
        began = time.perf_counter()
        a @ b
        times.append(time.perf_counter() - began)
    torch.set_num_threads(before)
    return 2 * size**3 / min(times)


def flops(module: nn.Module, channels: int, size: int) -> tuple[float, float]:
    """FLOPs of one picture forward, and forward and backward, in training mode; counted from the model."""
    images = torch.randn(2, channels, size, size)
    with FlopCounterMode(display=False) as forward:
        module(images)
    with FlopCounterMode(display=False) as both:
        module(images).sum().backward()
    return forward.get_total_flops() / 2, both.get_total_flops() / 2


class Costs(NamedTuple):
    """FLOPs of one picture."""

    training: float
    labelling: float  # in evaluation mode, where a network may look at its mirror image, too
    statistics: float  # one pass in training mode


def costs_of(module: nn.Module, channels: int, size: int) -> Costs:
    statistics, training = flops(module, channels, size)
    module.eval()
    with torch.inference_mode(), FlopCounterMode(display=False) as counted:
        module(torch.randn(2, channels, size, size))
    return Costs(training, counted.get_total_flops() / 2, statistics)


def bare_share(build: Callable[[], nn.Module], size: int, thread_count: int, training_flops: float) -> float:
    """Share of the peak that nothing but training steps at batch 10 reach, with the same model and optimiser."""
    took = step_seconds(build, size, thread_count)
    return 10 * training_flops / (took * matmul_peak(thread_count))


def step_seconds(
    build: Callable[[], nn.Module],
    size: int,
    thread_count: int,
    precision: Precision = "fp32",
    repeats: int = 10,
    batch: int = 10,
) -> float:
    """Of a bare training step."""
    network = Network(build(), precision=precision)
    sgd = SGD(0.01)
    optimizer = sgd.optimizer(sgd.stretches(network))
    images = torch.randn(batch, 3, size, size).to(memory_format=torch.channels_last)
    labels = torch.arange(batch) % 10

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        functional.cross_entropy(network(images), labels).backward()
        optimizer.step()

    with threads(thread_count):
        step()
        return seconds(step, repeats)


def build_wide_resnet(depth: int, width: int, size: int) -> nn.Module:
    torch.manual_seed(0)
    return WideResNet(depth, width).build(3, size, 10)


class Bench(NamedTuple):
    """A federation ready for rounds of a method."""

    place: Place
    server: ServerSite
    pool: Pool
    size: int
    tally: Tally

    def run_round(self, method: Any, state: Any, index: int) -> Any:
        t = Round(index, 0.0, Seed(0).under("round", index))
        self.tally.reset()
        clients = LocalFederation(self.pool, self.size, method, self.tally)
        state, model = method.round(t, state, self.server.at(t), clients)
        self.server.grade(model, "test")
        return state


@contextmanager
def federation(
    build: partial[nn.Module],
    size: int,
    clients: int,
    per_client: int,
    workers: int,
    labeled: int = 250,
    test: int = 500,
    precision: Precision = "fp32",
) -> Iterator[Bench]:
    """Random pictures: `labeled` at the server, `per_client` at each client."""
    generator = torch.Generator().manual_seed(0)
    pool = max(clients * per_client, 1)

    def pictures(count: int) -> Tensor:
        return torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, generator=generator)

    facts = Facts(CLASSES, (0.5,) * 3, (0.25,) * 3, True, 3, size)
    images = pictures(labeled + pool)
    labels = torch.arange(len(images)) % 10
    offsets = torch.arange(clients + 1) * per_client
    holdings = Holdings(labeled + torch.randperm(pool, generator=generator), offsets).spilled()
    graded = {"test": (pictures(test), torch.arange(test) % 10)}
    place = Place(facts, images, holdings, labels, graded, build, "cpu", None, precision=precision)
    if workers > 1:
        place.share()
    jobs = Workers(place, workers) if workers > 1 else Here(place)
    tally = Tally()
    try:
        server = ServerSite(place, torch.arange(labeled), labels, jobs, max(workers, 1), tally)
        with threads(1):
            yield Bench(place, server, jobs, clients, tally)
    finally:
        jobs.close()

"""What a run will take, before anything is trained: a round is tried with a few real steps and scaled up.

The trial runs the method's own code on sites that time the first steps of every fit and only count the rest, so
it holds for any method. Clients are taken to be confident about everything, which is the most a round can cost.
"""

from __future__ import annotations

import dataclasses
import math
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import Tensor

from semifl.configuration.build import World
from semifl.configuration.config import Run
from semifl.federation.local import LocalFederation, client_statistics, whole
from semifl.federation.sites import ClientSite, LabeledClientSite, Place, ServerSite, grade_block
from semifl.federation.tally import Tally, tensor_bytes
from semifl.federation.workers import Here, threads
from semifl.federation.world import ClientId, Cohort, Message, Reply, Round, Update
from semifl.learning.batchnorm import BatchNormStats
from semifl.learning.evaluation import blocks
from semifl.learning.network import Network
from semifl.learning.training import Fit, Fitted, fit
from semifl.learning.weights import Snapshot, Weights
from semifl.randomness import Seed
from semifl.running.context import check_outputs, check_training, with_threads

STEPS = 2  # timed of each fit, after one to warm up


@dataclass
class Estimate:
    """Seconds of a round by phase, bytes, and what the whole run needs."""

    seconds: dict[str, float] = field(default_factory=dict)
    bytes_down: int = 0
    bytes_up: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    minutes: float = 0.0
    once: float = 0.0  # seconds that all clients' frozen features take, in whichever rounds
    parameters: int = 0  # of the model, as far as they are trained
    loss: float | None = None  # of the server's first steps

    def add(self, phase: str, seconds: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds


def estimate(world: World, workers: int, device: str) -> Estimate:
    """By trying one round."""
    result = Estimate()
    with TemporaryDirectory(prefix="semifl-check-") as folder:
        return _after_one_round(world, world.place(None, device, Path(folder)), workers, result)


def _after_one_round(world: World, place: Place, workers: int, result: Estimate) -> Estimate:
    check_outputs(place)
    check_training(place, world.config)
    world = replace(world, config=with_threads(world.config, place))
    result.parameters = place.network.vector.numel()
    config = world.config
    server = _Server(place, world, result, workers)
    method = config.method.thing.busiest()
    federation = _Federation(place, len(world.division.clients), method, result, workers)
    t = Round(2, 0.0, Seed(config.run.seed).under("check"))  # like most: the first may have more to do
    state, model = method.round(t, method.start(place.network.weights()), server.at(t), federation)
    server.test(model)
    run = config.run
    models_alone = _models_alone(run, method)
    labels_only = models_alone * result.seconds.get("server", 0.0)
    result.minutes = (run.rounds * (sum(result.seconds.values()) + labels_only) + result.once) / 60
    result.memory_bytes = _memory(world, workers)
    kept = federation.memory_bytes * min(2 * run.rounds, len(world.division.clients) * 2)
    result.disk_bytes = tensor_bytes(state) * (2 + 2 * models_alone) + tensor_bytes(method.weights(state)) + kept
    result.disk_bytes += place.features.disk_bytes if place.features else 0
    return result


def _models_alone(run: Run, method: Any) -> int:
    """How many are trained without clients; of a plain server's no more is known than that they have less to do."""
    compared = (run.labels_only and "client_labels" not in method.needs) or run.guard
    plain = bool(compared and method.plain_server())
    of_the_start = int(run.start == "labels") * (1 + plain)
    return of_the_start + int(compared) + plain + int(run.guard)


class _Server(ServerSite):
    """A server that times instead of training to the end."""

    def __init__(self, place: Place, world: World, result: Estimate, workers: int) -> None:
        super().__init__(
            place, world.division.server, world.data.labels, Here(place), world.config.run.threads, Tally()
        )
        self._result, self._workers = result, workers
        self._test_every = world.config.run.test_every

    def fit(self, job: Fit) -> Fitted:
        with threads(self._threads):
            fitted, seconds = _timed_fit(self._place.network, job)
        self._result.add("server", seconds)
        self._result.loss = fitted.terms.get("loss", self._result.loss)
        return fitted

    def statistics(self, weights: Weights, pooled: bool = False) -> BatchNormStats:
        began = time.perf_counter()
        stats = super().statistics(weights, pooled)
        self._result.add("statistics", time.perf_counter() - began)
        return stats

    def test(self, model: Snapshot) -> None:
        for part, (images, _) in self._place.graded.items():
            spans = blocks(len(images))
            began = time.perf_counter()
            with threads(1):
                grade_block(self._place, model, (part, spans[0].start, spans[0].stop))
            seconds = (time.perf_counter() - began) * math.ceil(len(spans) / self._workers)
            self._result.add("test", seconds / (self._test_every if part == "test" else 1))


class _Client(ClientSite):
    """A client that times instead of training to the end, and labels one block."""

    seconds = 0.0

    def fit(self, job: Fit) -> Fitted:
        fitted, seconds = _timed_fit(self._place.network_of(job.width), job)
        self.seconds += seconds
        return fitted

    def outputs(self, model: Snapshot, images: Tensor) -> Tensor:
        began = time.perf_counter()
        logits = super().outputs(model, images)
        self.seconds += time.perf_counter() - began
        return logits

    def statistics(self, weights: Weights) -> BatchNormStats:
        began = time.perf_counter()
        stats = super().statistics(weights)
        self.seconds += time.perf_counter() - began
        return stats


class _LabeledClient(_Client, LabeledClientSite):
    pass


class _Federation(LocalFederation):
    """A federation whose cohort is one client, counted for all."""

    def __init__(self, place: Place, size: int, method: Any, result: Estimate, workers: int) -> None:
        super().__init__(Here(place), size, method, Tally())
        self._place, self._result, self._workers = place, result, workers
        self.memory_bytes = 0

    def _turns(self, jobs: int) -> int:
        """How many jobs the busiest worker has."""
        return math.ceil(jobs / self._workers)

    def each(
        self, cohort: Cohort, message: Message, t: Round, own: Callable[[ClientId], Message] | None = None
    ) -> Iterator[Reply]:
        # The client with the median number of pictures stands for everyone.
        order = self._place.holdings.counts[list(cohort)].argsort()
        typical = cohort[int(order[len(cohort) // 2])]
        kind = _LabeledClient if "client_labels" in self._place.needs else _Client
        began = time.perf_counter()
        site = kind(self._place, typical, t.seed.under("client", typical), None)
        if self._place.features and not self._result.once:
            self._result.once = (time.perf_counter() - began) * self._turns(len(self))
        sent = whole(message, own(typical) if own else None)
        with threads(1):
            update: Update | None = self._method.client_update(site, sent, t)
        self._result.add("clients", site.seconds * self._turns(len(cohort)))
        self._result.bytes_down += tensor_bytes(sent) * len(cohort)
        if update is not None:
            self._result.bytes_up += tensor_bytes(update.change) * len(cohort)
            self.memory_bytes = tensor_bytes(update.memory)
        yield Reply(typical, update, "trained" if update else "abstained", "", site.signals)

    def statistics(self, weights: Weights, of: Cohort, own: BatchNormStats | None = None) -> Iterator[BatchNormStats]:
        if of:
            began = time.perf_counter()
            with threads(1):
                stats = client_statistics(self._place, weights, of[0])
            self._result.bytes_down += tensor_bytes(weights) * len(of)
            self._result.bytes_up += tensor_bytes(stats) * len(of)
            yield stats
            self._result.add("statistics", (time.perf_counter() - began) * self._turns(len(of)))


def _timed_fit(network: Network, job: Fit) -> tuple[Fitted, float]:
    """A few steps of the job and the seconds that all of it would take."""
    began = time.perf_counter()
    remaining = iter(job.batches)
    first = list(islice(remaining, STEPS + 1))
    count = len(first) + sum(1 for _ in remaining)
    making_views = time.perf_counter() - began
    fit(network, dataclasses.replace(job, batches=first[:1]))
    began = time.perf_counter()
    timed = first[1:] or first
    fitted = fit(network, dataclasses.replace(job, batches=timed))
    return fitted, making_views + (time.perf_counter() - began) * count / len(timed)


def _memory(world: World, workers: int) -> int:
    """This process as it is now, and as much without the data for every worker."""
    unit = 1 if sys.platform == "darwin" else 1024
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    data = tensor_bytes((world.data.images, world.data.test_images))
    return own + (workers * max(own - data, 0) if workers > 1 else 0)

"""What the loop works with: the world, the processes that act in it, the directory it is written to, who watches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from semifl.configuration.build import World, positive_class
from semifl.configuration.config import Config
from semifl.errors import UserError
from semifl.federation.cluster.address import Cluster
from semifl.federation.local import LocalFederation
from semifl.federation.memory import ClientMemory
from semifl.federation.pools import open_pool
from semifl.federation.sites import Place, ServerSite
from semifl.federation.tally import Tally
from semifl.federation.workers import Log, Pool, threads
from semifl.federation.world import Federation, Round
from semifl.learning.compiling import refuse_without_compiler
from semifl.learning.network import Network
from semifl.learning.stacking import refuse_unstackable
from semifl.learning.weights import Snapshot, Weights
from semifl.randomness import Seed
from semifl.records.directory import RunDirectory
from semifl.records.metrics import Metric
from semifl.records.record import Measured, RoundRecord, is_best

FEATURES = "features"  # the folder of frozen features, as long as the run goes on
SMALL_STEP = 1e8  # multiply-adds of a forward pass over a batch, below which one thread is taken
BATCHES = ("server_batch", "client_batch", "batch")  # fields of methods: pictures in a step


class Elsewhere(Protocol):
    """Clients that are not simulated here."""

    @property
    def pictures(self) -> list[int]:
        """How many each of them says it holds; 0 of one that keeps it to itself."""
        ...

    def federation(self, tally: Tally) -> Federation: ...


class BaselineProgress(NamedTuple):
    """How far the training of labels-only models is."""

    model: int  # which one, from 1
    models: int  # how many there are in all
    done: int  # rounds of this one
    rounds: int

    @property
    def is_last(self) -> bool:
        """Whether nothing is left of any of them."""
        return self.model == self.models and self.done == self.rounds

    def __str__(self) -> str:
        return f"labels only, model {self.model} of {self.models}: {self.done} of {self.rounds}"


class Observer(Protocol):
    """Whoever watches a run."""

    def begin(self, world: World, first_round: int) -> None:
        """Before anything is trained."""
        ...

    def baseline(self, progress: BaselineProgress) -> None:
        """Before the first and after each round of a labels-only model, which comes first."""
        ...

    def labels_only(self, value: float) -> None:
        """What that model reaches, in the metric that decides."""
        ...

    def round(self, record: RoundRecord, best: float | None) -> None:
        """After each round, with the best so far; a StopIteration ends the run in order, with model and summary."""
        ...

    def warn(self, message: str) -> None: ...


class Silent:
    """Nobody watches."""

    def begin(self, world: World, first_round: int) -> None:
        pass

    def baseline(self, progress: BaselineProgress) -> None:
        pass

    def labels_only(self, value: float) -> None:
        pass

    def round(self, record: RoundRecord, best: float | None) -> None:
        pass

    def warn(self, message: str) -> None:
        pass


@dataclass
class RunContext:
    world: World
    place: Place
    memory: ClientMemory
    pool: Pool
    server: ServerSite
    tally: Tally
    directory: RunDirectory
    observer: Observer
    first_weights: Weights  # of the model as it is built, before anybody has taught it
    elsewhere: Elsewhere | None = None  # None: the clients are simulated here

    @property
    def method(self) -> Any:
        return self.world.config.method.thing

    @property
    def metric(self) -> Metric:
        """What decides which model is better."""
        return self.world.config.run.metric

    @property
    def positive(self) -> int:
        """Of two classes the one whose finding counts as positive."""
        return positive_class(self.world.config, self.world.data.facts)

    def clients(self, failures_allowed: int = 0) -> Federation:
        if self.elsewhere:
            return self.elsewhere.federation(self.tally)
        size, stack, log = len(self.world.division.clients), self.world.config.run.stack, self.directory.add_failure
        return LocalFederation(self.pool, size, self.method, self.tally, failures_allowed, self.memory, stack, log)

    @property
    def client_pictures(self) -> list[int]:
        return self.elsewhere.pictures if self.elsewhere else self.world.division.clients.counts.tolist()

    def nobody(self, method: Any) -> LocalFederation:
        """A federation that no client has joined."""
        return LocalFederation(self.pool, 0, method, self.tally)

    def server_with(self, positions: Tensor) -> ServerSite:
        """A server that holds these labeled pictures."""
        world = self.world
        return ServerSite(self.place, positions, world.data.labels, self.pool, world.config.run.threads, self.tally)

    def round_at(self, index: int, progress_of: int, what: str = "round") -> Round:
        """Round `index`, with the learning rate of round `progress_of`; `what` has random numbers of its own."""
        run = self.world.config.run
        return Round(index, (progress_of - 1) / run.rounds, Seed(run.seed).under(what, index))

    def scheduled_for(self, rounds: int) -> RunContext:
        """The same with learning rates of that many rounds."""
        config = self.world.config
        return replace(self, world=replace(self.world, config=replace(config, run=replace(config.run, rounds=rounds))))

    def test(self, model: Snapshot, due: bool = True, history: Sequence[Measured] = ()) -> None:
        """Score a model on labels held out, and if that is due or it is the best there so far on the test pictures."""
        self.tally.tested = model
        if "validation" in self.place.graded:
            self.tally.validation = self.server.grade(model, "validation")
            due = due or is_best(getattr(self.tally.validation, self.metric), history, self.metric)
        if due:
            self.tally.score = self.server.grade(model, "test")

    def is_due(self, index: int) -> bool:
        """Whether this round's model is tested, whatever labels held out say of it."""
        return index == 1 or index % self.world.config.run.test_every == 0


@contextmanager
def open_context(
    world: World,
    directory: RunDirectory,
    workers: int | Cluster,
    device: str,
    observer: Observer,
    elsewhere: Elsewhere | None = None,
) -> Iterator[RunContext]:
    """Everything in place, and put away afterwards."""
    if elsewhere is None and not len(world.division.clients.order):
        raise UserError(
            "no client of this run has a picture here: a run of a real federation goes on with 'semifl deploy'"
        )
    memory = ClientMemory(directory.checkpoints / "memory")
    place = world.place(memory, device, directory.checkpoints / FEATURES)
    pool = open_pool(place, workers, Log(directory.add_event, observer.warn))
    tally = Tally()
    server = ServerSite(place, world.division.server, world.data.labels, pool, world.config.run.threads, tally)
    try:
        # All but the server's own work is done by one thread: two that wait for each other are slow on a busy machine.
        with threads(1):
            # The first weights are taken now: every fit leaves its own in the network.
            first = place.network.weights()
            yield RunContext(world, place, memory, pool, server, tally, directory, observer, first, elsewhere)
    finally:
        pool.close()


def check_outputs(place: Place) -> None:
    """A model that does not fit pictures and classes is told at once, not by a traceback from a training step."""
    place = place.of_pictures()
    facts, network = place.facts, place.network
    pictures = torch.zeros(2, facts.channels, facts.size, facts.size, device=network.device)
    network.module.eval()
    try:
        with torch.no_grad():
            outputs: Any = network(pictures.contiguous(memory_format=torch.channels_last))
    except Exception as error:  # whatever a person's own code may raise
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(
            f"the model cannot take pictures of {facts.channels} × {facts.size} × {facts.size}: {reason}"
        ) from error
    got = list(outputs.shape) if isinstance(outputs, Tensor) else type(outputs).__name__
    if got != [2, facts.classes]:
        raise UserError(
            f"the model gives {got} for two pictures, but {facts.classes} classes need [2, {facts.classes}]"
        )


def check_training(place: Place, config: Config) -> None:
    """A way to train that this model or machine cannot follow is told at once, too."""
    place = place.of_pictures()
    facts, network = place.facts, place.network
    pictures = torch.zeros(2, facts.channels, facts.size, facts.size, device=network.device)
    if config.run.stack > 1:
        refuse_unstackable(network, pictures)
    if place.compiled:
        refuse_without_compiler(place.device)
    if alone := [key for key in BATCHES if getattr(config.method.thing, key, 0) == 1]:
        _refuse_lone_pictures(network, pictures[:1], alone[0])


def with_threads(config: Config, place: Place) -> Config:
    """Return the configuration with a number of threads for the server's training, chosen if it names none.

    Threads are part of the bits, so the choice depends on the network and the batch alone and not on the machine. Two
    threads that wait for each other after every layer of a small network gain little and lose much on a busy machine
    (docs/decisions/0005).
    """
    if config.run.threads:
        return config
    place = place.of_pictures()
    facts, network = place.facts, place.network
    pictures = torch.zeros(2, facts.channels, facts.size, facts.size, device=network.device)
    network.module.eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        network(pictures)
    multiply_adds = counter.get_total_flops() / 2 / len(pictures)
    method = config.method.thing
    batch = getattr(
        method, "server_batch", getattr(method, "batch", 0)
    )  # fedavg has neither: its server does not train
    return replace(config, run=replace(config.run, threads=1 if multiply_adds * batch < SMALL_STEP else 2))


def _refuse_lone_pictures(network: Network, picture: Tensor, key: str) -> None:
    """Where a norm has one value of a channel to go by, torch gives up in the middle of a run."""
    network.module.train()
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            network(picture)
    except ValueError as error:
        raise UserError(
            f"method.{key} = 1 is too few for this model, whose norm has one value of a channel in such a batch: "
            "take 2 or more"
        ) from error
    finally:
        network.module.eval()

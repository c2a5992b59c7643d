"""Sites over real tensors: the server with its labels, and clients that can be visited in any process."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from semifl.data.augment import normalize
from semifl.data.dataset import Facts
from semifl.data.mapped import Mapped, place_of
from semifl.data.partition import Holdings
from semifl.federation.features import CLIENTS, HELD_OUT, LABELED, POOLED, TESTED, FrozenFeatures, Owner, tickets
from semifl.federation.memory import ClientMemory
from semifl.federation.oracle import Oracle
from semifl.federation.signals import BINS
from semifl.federation.tally import Tally
from semifl.federation.workers import Pool, must, threads
from semifl.federation.world import Round
from semifl.learning.batchnorm import BatchNormStats
from semifl.learning.evaluation import Score, blocks, score, slices
from semifl.learning.network import Network
from semifl.learning.precision import Precision
from semifl.learning.stacking import Ask, Seat
from semifl.learning.targets import PseudoLabels, pseudo_labels
from semifl.learning.training import Fit, Fitted, Memory, fit
from semifl.learning.weights import Snapshot, Weights
from semifl.randomness import Seed

MEASURED = 10_000  # pooled pictures at most that a model's BatchNorm statistics are measured on


@dataclass
class Place:
    """All that a process needs to act for any site; tensors lie in shared memory, the network is each process's own."""

    facts: Facts
    images: Tensor  # uint8, all training pictures
    holdings: Holdings
    hidden_labels: Tensor  # for the oracle alone
    graded: dict[str, tuple[Tensor, Tensor]]  # "test" and perhaps "validation": pictures and labels
    build: Callable[..., nn.Module]  # with `width` below 1: the same model, narrower
    device: str
    memory: ClientMemory | None
    needs: frozenset[str] = frozenset()  # of the method, beyond the paper's world
    precision: Precision = "fp32"  # of the network's passes
    compiled: bool = False  # whether those of training are
    labeled: Tensor | None = None  # positions of all labeled pictures, ascending, where they are here
    features: FrozenFeatures | None = None  # what sites see instead of pictures

    @cached_property
    def network(self) -> Network:
        module = self.build()
        if self.features:
            module.takes_features = True  # type: ignore[assignment]
        return Network(module, self.device, self.precision, self.compiled)

    def of_pictures(self) -> Place:
        """The same place before anything became features."""
        return replace(self, facts=self.features.facts, features=None) if self.features else self

    def images_of(self, client: int) -> Tensor:
        return self._seen(CLIENTS + client, self.images[self.holdings[client]])

    def labeled_images(self, positions: Tensor) -> Tensor:
        if not self.features:
            return self.images[positions]
        assert self.labeled is not None
        return self._seen(LABELED, self.images[self.labeled])[torch.searchsorted(self.labeled, positions)]

    def pooled_images(self, positions: Tensor) -> Tensor:
        return self._seen(POOLED, self.images[positions])

    def graded_images(self, part: str, start: int, stop: int) -> Tensor:
        images, span = self.graded[part][0], slice(start, stop)
        if not self.features:
            return images[span]
        owner = HELD_OUT if part == "validation" else TESTED
        self.features.ensure(owner, images, self.network, span)
        return tickets(owner, torch.arange(start, stop))

    def _seen(self, owner: Owner, images: Tensor) -> Tensor:
        """The pictures, or tickets to their features."""
        if not self.features:
            return images
        self.features.ensure(owner, images, self.network)
        return tickets(owner, torch.arange(len(images)))

    @cached_property
    def _narrow(self) -> dict[float, Network]:
        return {}

    def network_of(self, width: float) -> Network:
        """The network, or its narrower kin, each built once per process."""
        if width == 1:
            return self.network
        if width not in self._narrow:
            self._narrow[width] = Network(self.build(width=width), self.device, self.precision, self.compiled)
        return self._narrow[width]

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which maps the file of mapped pictures itself."""
        state = {name: value for name, value in vars(self).items() if name not in ("network", "_narrow")}
        graded = {part: (place_of(images) or images, labels) for part, (images, labels) in self.graded.items()}
        return {**state, "images": place_of(self.images) or self.images, "graded": graded}

    def __setstate__(self, state: dict[str, Any]) -> None:
        graded = {part: (_opened(images), labels) for part, (images, labels) in state["graded"].items()}
        vars(self).update(state | {"images": _opened(state["images"]), "graded": graded})

    def for_other_machines(self) -> Place:
        """The same with the table of who holds what in memory: a file of this machine is not there."""
        order, offsets = self.holdings.order, self.holdings.offsets
        return replace(self, holdings=Holdings(order.clone(), offsets)) if place_of(order) else self

    def share(self) -> None:
        """Move the tensors to shared memory, once, so that workers can see them without a copy."""
        pairs = [tensor for pair in self.graded.values() for tensor in pair]
        for tensor in (self.images, self.holdings.order, self.holdings.offsets, self.hidden_labels, *pairs):
            if place_of(tensor) is None:
                tensor.share_memory_()  # type: ignore[no-untyped-call]


def _opened(images: Tensor | Mapped) -> Tensor:
    return images.open() if isinstance(images, Mapped) else images


def infer(place: Place, model: Snapshot, images: Tensor) -> Iterator[Tensor]:
    """Logits of uint8 pictures, slice by slice."""
    place.network.load_snapshot(model)
    with torch.inference_mode():
        for part in slices(len(images), place.facts.size):
            yield place.network(normalize(images[part], place.facts).to(place.network.device))


def statistics_of(place: Place, weights: Weights, images: Tensor) -> BatchNormStats:
    """BatchNorm statistics of uint8 pictures, block by block."""
    place.network.load(weights)
    device = place.network.device
    views = (normalize(images[block], place.facts).to(device) for block in blocks(len(images)))
    return place.network.statistics(views)


def own_statistics(place: Place, weights: Weights, images: Tensor) -> BatchNormStats:
    """None of a client that has nothing to take a variance of: no picture, or one that shrinks to a single value."""
    try:
        return statistics_of(place, weights, images) if len(images) else {}
    except ValueError as error:
        if "more than 1 value per channel" in str(error):
            return {}
        raise


class ClientSite:
    """One client in one round: no attribute for labels, though the simulation's oracle may judge what it counts."""

    def __init__(self, place: Place, client: int, seed: Seed, memory: Memory | None, ask: Ask | None = None) -> None:
        self._place = place
        self.index = client
        self._ask = ask  # of those who train side by side; None trains alone
        positions = place.holdings[client]
        self._oracle = Oracle(place.hidden_labels[positions])
        self.facts = place.facts
        self.images = place.images_of(client)
        self.seed = seed
        self.memory = memory
        self.signals: dict[str, Any] = {}

    def fit(self, job: Fit) -> Fitted:
        self.signals["lr"] = job.sgd.lr
        network = self._place.network_of(job.width)
        return fit(Seat(network, self._ask) if self._ask else network, job)

    def outputs(self, model: Snapshot, images: Tensor) -> Tensor:
        nothing = torch.empty(0, self.facts.classes)  # of a client without pictures
        return torch.cat([nothing, *(logits.cpu() for logits in infer(self._place, model, images))])

    def statistics(self, weights: Weights) -> BatchNormStats:
        return own_statistics(self._place, weights, self.images)

    def pseudo_labels(self, model: Snapshot, images: Tensor) -> PseudoLabels:
        return pseudo_labels(self.outputs(model, images))

    def observe(
        self,
        pseudo: PseudoLabels,
        confident: Tensor,
        positions: Tensor | None = None,
        said: Tensor | None = None,
    ) -> None:
        if said is not None:
            self.signals["said"] = torch.bincount(said, minlength=self.facts.classes).tolist()
        self.signals |= {
            "images": len(pseudo.labels),
            "confident": int(confident.sum()),
            "confidence": float(pseudo.confidence.sum(dtype=torch.float64)),
            "predicted": torch.bincount(pseudo.labels, minlength=self.facts.classes).tolist(),
            "classes": torch.bincount(pseudo.labels[confident], minlength=self.facts.classes).tolist(),
            "confidence_bins": torch.bincount(
                (BINS * pseudo.confidence).long().clamp(0, BINS - 1), minlength=BINS
            ).tolist(),
            **self._oracle.judge(pseudo, confident, positions),
        }


class LabeledClientSite(ClientSite):
    """A client of a world in which clients know their labels."""

    def __init__(self, place: Place, client: int, seed: Seed, memory: Memory | None, ask: Ask | None = None) -> None:
        super().__init__(place, client, seed, memory, ask)
        self.labels = place.hidden_labels[place.holdings[client]]


class ServerSite:
    """The server: fits with its configured number of threads; scoring is shared out to the pool."""

    def __init__(
        self, place: Place, positions: Tensor, labels: Tensor, pool: Pool, thread_count: int, tally: Tally
    ) -> None:
        self._place = place
        self._pool = pool
        self._threads = thread_count
        self._tally = tally
        self.facts = place.facts
        self.images = place.labeled_images(positions)
        self.labels = labels[positions]
        self.seed = Seed(0)  # of no round; see `at`
        self._pooled = place.holdings.order

    @cached_property
    def pooled_images(self) -> Tensor:
        """Every client's pictures, in a world where they may be pooled; none in a federation nobody has joined."""
        if "pooled_images" not in self._place.needs:
            raise AttributeError("this server has no client's pictures")
        return self._place.pooled_images(self._pooled.long())

    @cached_property
    def pooled_labels(self) -> Tensor:
        if not {"pooled_images", "client_labels"} <= self._place.needs:
            raise AttributeError("this server has no client's labels")
        return self._place.hidden_labels[self._pooled.long()]

    def at(self, t: Round) -> ServerSite:
        """This server with its random streams of a round."""
        server = copy(self)
        server.seed = t.seed.under("server")
        return server

    def alone(self) -> ServerSite:
        """This server, without any client's pictures."""
        self._pooled = self._pooled[:0]
        return self

    def fit(self, job: Fit) -> Fitted:
        with self._tally.phase("server"), threads(self._threads):
            fitted = fit(self._place.network, job)
        self._tally.lr = job.sgd.lr
        self._tally.server_terms = fitted.terms
        return fitted

    def statistics(self, weights: Weights, pooled: bool = False) -> BatchNormStats:
        images = thinned(torch.cat([self.images, self.pooled_images])) if pooled else self.images
        with self._tally.phase("statistics"), threads(self._threads):
            return statistics_of(self._place, weights, images)

    def outputs(self, model: Snapshot, images: Tensor) -> Tensor:
        network = self._place.network
        network.load_snapshot(model)
        images = images.to(network.device)
        with torch.inference_mode():
            return network(network.frozen(images) if self._place.features else images).cpu().clone()

    def grade(self, model: Snapshot, part: str) -> Score:
        """Score a model on a labeled part of the data, in fixed blocks, wherever there is room."""
        spans = [(part, block.start, block.stop) for block in blocks(len(self._place.graded[part][0]))]
        with self._tally.phase("test"):
            scores: list[Score] = list(must(self._pool.run(grade_block, model, spans)))
        return sum(scores[1:], scores[0])


def thinned(images: Tensor) -> Tensor:
    """Every one of few pictures, or every second, third, … of many: means and variances of these stand for all."""
    return images[:: max(math.ceil(len(images) / MEASURED), 1)]


def grade_block(place: Place, model: Snapshot, span: tuple[str, int, int]) -> Score:
    part, start, stop = span
    logits = torch.cat(list(infer(place, model, place.graded_images(part, start, stop))))
    return score(logits.cpu(), place.graded[part][1][start:stop])

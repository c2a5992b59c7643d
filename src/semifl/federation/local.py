"""A federation on one machine: clients are visited in this process or in worker processes."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from semifl.errors import RunStopped
from semifl.federation.memory import ClientMemory
from semifl.federation.sites import ClientSite, LabeledClientSite, Place, own_statistics
from semifl.federation.tally import Tally, tensor_bytes
from semifl.federation.workers import JobFailed, Pool, must
from semifl.federation.world import ClientId, Cohort, Message, Method, Reply, Round
from semifl.learning.batchnorm import BatchNormStats
from semifl.learning.stacking import Ask, side_by_side
from semifl.learning.training import Memory
from semifl.learning.weights import Weights, fault, is_finite, shapes

FEW = 1000  # times a cohort: in a federation larger than that it is cheaper not to permute all
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


class Visit(NamedTuple):
    """One client's turn in a round."""

    client: ClientId
    method: Method
    t: Round
    own: Message  # for this client alone; None: the message to all is enough
    carried: Carried | None = None  # None: its memory is read and written where it is visited


class Carried(NamedTuple):
    """A memory that travels with its client, to where the run's files are not."""

    memory: Memory | None


class LocalFederation:
    """All clients of a simulation; `size` 0 is a federation nobody has joined.

    A client whose code raises has failed; after `failures_allowed` of them the run stops, naming round and client.
    `on_failure` is given which client failed and its traceback where the run goes on. Clients' memory is carried to and
    from jobs that do not see the run's files. `stack` clients train side by side in one process.
    """

    max_share = 1.0

    def __init__(
        self,
        pool: Pool,
        size: int,
        method: Method,
        tally: Tally,
        failures_allowed: int = 0,
        memory: ClientMemory | None = None,
        stack: int = 1,
        on_failure: Callable[[str, str], None] | None = None,
    ) -> None:
        self._pool = pool
        self._method = method
        self._size = size
        self._tally = tally
        self._failures_allowed = failures_allowed
        self._carried = None if pool.sees_files else memory
        self._stack = stack
        self._on_failure = on_failure or (lambda what, trace: None)

    def __len__(self) -> int:
        return self._size

    def everyone(self) -> Cohort:
        return tuple(range(self._size))

    def sample(self, count: int, rng: torch.Generator) -> Cohort:
        return draw(self._size, count, rng)

    def each(
        self, cohort: Cohort, message: Message, t: Round, own: Callable[[ClientId], Message] | None = None
    ) -> Iterator[Reply]:
        orders = [Visit(client, self._method, t, own(client) if own else None) for client in cohort]
        results = self._visits(message, _Carrying(orders, self._carried) if self._carried else orders)
        for order in orders:
            client = order.client
            self._tally.bytes_down += tensor_bytes(message) + tensor_bytes(order.own)
            with self._tally.phase("clients"):
                result = next(results)
                if isinstance(result, JobFailed):
                    reply = self._failed(client, result, t)
                else:
                    reply = inspected(
                        self._brought_home(result, t), self._method.sent_weights(whole(message, order.own))
                    )
            self._tally.received(reply)
            yield reply

    def _visits(self, message: Message, orders: Sequence[Visit]) -> Iterator[Any]:
        """A reply or a JobFailed for each order; who is stacked with whom is the cohort's order, not the pool's."""
        if self._stack == 1:
            yield from self._pool.run(visit, message, orders)
            return
        stacks = _Stacks(orders, self._stack)
        for place, replies in enumerate(self._pool.run(visit_together, message, stacks)):
            yield from [replies] * stacks.size(place) if isinstance(replies, JobFailed) else replies

    def _brought_home(self, reply: Reply, t: Round) -> Reply:
        """Write down what a client remembers, where that did not happen at its visit."""
        if self._carried is None or reply.update is None:
            return reply
        if reply.update.memory:
            self._carried.write(reply.client, t.index, reply.update.memory)
        return reply._replace(update=reply.update._replace(memory={}))

    def _failed(self, client: ClientId, failure: JobFailed, t: Round) -> Reply:
        if failure.errno in DISK:  # the simulation's disk, not the client's fault
            raise OSError(failure.errno, failure.reason) from failure
        if self._failures_allowed <= 0:  # fewer than none, if a person has lowered the limit since
            raise RunStopped(f"client {client} failed in round {t.index}: {failure.reason}") from failure
        self._failures_allowed -= 1
        self._on_failure(f"client {client} failed in round {t.index}", failure.trace)
        return Reply(client, None, "failed", failure.reason, {})

    def statistics(self, weights: Weights, of: Cohort, own: BatchNormStats | None = None) -> Iterator[BatchNormStats]:
        if not of:
            return
        with self._tally.phase("statistics"):
            for stats in must(self._pool.run(client_statistics, weights, of)):
                self._tally.bytes_down += tensor_bytes(weights)
                self._tally.bytes_up += tensor_bytes(stats)
                yield stats


def draw(size: int, count: int, rng: torch.Generator) -> Cohort:
    """`count` of `size` clients, uniformly; the same wherever the clients live."""
    if count * FEW > size:
        return tuple(torch.randperm(size, generator=rng)[:count].sort().values.tolist())
    return tuple(sorted(_first_of_permutation(size, count, rng)))


def _first_of_permutation(size: int, count: int, rng: torch.Generator) -> list[int]:
    """What torch.randperm begins with, by its own steps: place i changes with one of those from i on.

    So the first places are settled first, and the others, of which there may be a million, need not be there.
    """
    moved: dict[int, int] = {}  # place: who came there, where that is not the place's own number
    drawn = []
    for place in range(count):
        other = place + int(torch.randint(size - place, (), generator=rng))
        drawn.append(moved.get(other, other))
        moved[other] = moved.get(place, place)
    return drawn


def whole(message: Message, own: Message) -> Message:
    """What one client is sent: the message to all, or that and its own part."""
    return message if own is None else (message, own)


def inspected(reply: Reply, sent: Weights) -> Reply:
    """Turn an update away before it can touch the average, if it is no change of what was sent."""
    reason = fault(reply.update.change, shapes(sent)) if reply.update else ""
    return reply._replace(update=None, outcome="rejected", reason=reason) if reason else reply


class _Carrying(Sequence[Visit]):
    """Orders with the client's memory in each, read when its turn comes: a large cohort's is never there at once."""

    def __init__(self, orders: list[Visit], memory: ClientMemory) -> None:
        self._orders = orders
        self._memory = memory

    def __len__(self) -> int:
        return len(self._orders)

    def __getitem__(self, place: Any) -> Any:
        order = self._orders[place]
        return order._replace(carried=Carried(self._memory.read(order.client, before=order.t.index)))


class _Stacks(Sequence[list[Visit]]):
    """Orders, so many together; the last are what is left."""

    def __init__(self, orders: Sequence[Visit], height: int) -> None:
        self._orders = orders
        self._height = height

    def __len__(self) -> int:
        return -(-len(self._orders) // self._height)

    def __getitem__(self, place: Any) -> Any:
        first = place * self._height
        return [self._orders[each] for each in range(first, first + self.size(place))]

    def size(self, place: int) -> int:
        return min(self._height, len(self._orders) - place * self._height)


def visit_together(place: Place, message: Any, orders: list[Visit]) -> list[Reply | JobFailed]:
    """Let several clients do their tasks side by side; one that fails leaves, and the others go on."""

    def one(ask: Ask, order: Visit) -> Reply | JobFailed:
        try:
            return visit(place, message, order, ask)
        except Exception as error:
            return JobFailed.of(error)

    return side_by_side([partial(one, order=order) for order in orders])


def visit(place: Place, message: Any, order: Visit, ask: Ask | None = None) -> Reply:
    """Let one client do its task; what it remembers is written down here, or carried home."""
    client, method, t, own, carried = order
    memory = carried.memory if carried else place.memory.read(client, before=t.index) if place.memory else None
    kind = LabeledClientSite if "client_labels" in place.needs else ClientSite
    site = kind(place, client, t.seed.under("client", client), memory, ask)
    update = method.client_update(site, whole(message, own), t)
    if update is None:
        return Reply(client, None, "abstained", "", site.signals)
    # A model that has diverged must not be remembered: the client would start from it for ever.
    sound = bool(update.memory) and is_finite(update.memory) and is_finite(update.change)
    if sound and place.memory and not carried:
        place.memory.write(client, t.index, update.memory)
    return Reply(client, update if sound and carried else update._replace(memory={}), "trained", "", site.signals)


def client_statistics(place: Place, weights: Weights, client: ClientId) -> BatchNormStats:
    return own_statistics(place, weights, place.images_of(client))

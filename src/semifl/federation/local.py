"""A federation on one machine: clients are visited in this process or in worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from semifl.federation.sites import ClientSite, Place, statistics_of
from semifl.federation.tally import Tally, tensor_bytes
from semifl.federation.workers import JobFailed, Pool
from semifl.federation.world import ClientId, Cohort, Message, Reply, Round, Task
from semifl.learning.batchnorm import BatchNormStats
from semifl.learning.weights import Weights


class ClientFailed(Exception):
    """A client's code raised; names the round and the client."""


class Visit(NamedTuple):
    """One client's turn in a round."""

    client: ClientId
    task: Task
    t: Round


class LocalFederation:
    """All clients of a simulation; `size` 0 is a federation nobody has joined."""

    def __init__(self, pool: Pool, size: int, tally: Tally) -> None:
        self._pool = pool
        self._size = size
        self._tally = tally

    def __len__(self) -> int:
        return self._size

    def everyone(self) -> Cohort:
        return tuple(range(self._size))

    def sample(self, count: int, rng: torch.Generator) -> Cohort:
        return tuple(torch.randperm(self._size, generator=rng)[:count].sort().values.tolist())

    def each(self, cohort: Cohort, task: Task, message: Message, t: Round) -> Iterator[Reply]:
        visits = [Visit(client, task, t) for client in cohort]
        replies = self._pool.run(visit, message, visits)
        for client in cohort:
            self._tally.bytes_down += tensor_bytes(message)
            with self._tally.phase("clients"):
                try:
                    reply: Reply = next(replies)
                except JobFailed as error:
                    raise ClientFailed(f"client {client} failed in round {t.index}:\n{error}") from error
            self._tally.received(reply)
            yield reply

    def statistics(self, weights: Weights, of: Cohort) -> Iterator[BatchNormStats]:
        if not of:
            return
        with self._tally.phase("statistics"):
            for stats in self._pool.run(client_statistics, weights, of):
                self._tally.bytes_down += tensor_bytes(weights)
                self._tally.bytes_up += tensor_bytes(stats)
                yield stats


def visit(place: Place, message: Any, order: Visit) -> Reply:
    """Let one client do its task; what it remembers is written down here and never travels."""
    client, task, t = order
    memory = place.memory.read(client, before=t.index) if place.memory else None
    site = ClientSite(place, client, t.seed.under("client", client), memory)
    update = task(site, message, t)
    if update is None:
        return Reply(client, None, "abstained", "", site.signals)
    if place.memory and update.memory:
        place.memory.write(client, t.index, update.memory)
    return Reply(client, update._replace(memory={}), "trained", "", site.signals)


def client_statistics(place: Place, weights: Weights, client: ClientId) -> BatchNormStats:
    return statistics_of(place, weights, place.images[place.holdings[client]])

"""What happened in a round, as sums: who answered, what clients believe, bytes, seconds by phase, scores."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from semifl.federation.signals import SIGNALS
from semifl.federation.world import ClientId, Reply, Update
from semifl.learning.evaluation import Score
from semifl.learning.weights import Snapshot


class Tally:
    """Filled by server and federation while a round runs; read and reset by the experiment."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.seconds: dict[str, float] = {}
        self.replies: list[Reply] = []  # one for each client, without change and memory
        self._position: dict[ClientId, int] = {}  # of a client's reply
        self.server_terms: dict[str, float] = {}
        self.lr: float | None = None
        self.bytes_up = 0
        self.bytes_down = 0
        self.tested: Snapshot | None = None
        self.score: Score | None = None
        self.validation: Score | None = None

    def losses(self) -> list[float]:
        """Every mean loss that this round's training reported."""
        terms = [self.server_terms, *(reply.update.terms for reply in self.replies if reply.update)]
        return [each["loss"] for each in terms if "loss" in each]

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        began = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - began

    def received(self, reply: Reply) -> None:
        if reply.update is not None:
            sent = reply.update.wire_bytes
            self.bytes_up += tensor_bytes(reply.update.change) if sent is None else sent
            reply = reply._replace(update=reply.update._replace(change={}, memory={}))
        position = self._position.setdefault(reply.client, len(self.replies))
        if position < len(self.replies):  # asked more than once in a round
            self.replies[position] = both(self.replies[position], reply)
        else:
            self.replies.append(reply)


def both(a: Reply, b: Reply) -> Reply:
    """Two turns of one client in a round as one: counts are added, and it has trained if it did so in either."""
    told = b if a.update is None else a
    update = _together(a.update, b.update) if a.update and b.update else told.update
    outcome, reason = (told.outcome, told.reason) if update else (b.outcome, b.reason)
    return Reply(a.client, update, outcome, reason, _summed(a.facts, b.facts))


def _together(a: Update, b: Update) -> Update:
    """The means of the loss terms by the examples that each rests on."""
    examples = a.examples + b.examples
    shares = [(update, update.examples / examples if examples else 0.5) for update in (a, b)]
    names = {**a.terms, **b.terms}
    terms = {name: sum(share * update.terms.get(name, 0.0) for update, share in shares) for name in names}
    return a._replace(examples=examples, terms=terms)


def _summed(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    facts = {**b, **a}
    for signal in SIGNALS:
        name = signal.name
        if signal.is_of_pictures and a.get(name) is not None and b.get(name) is not None:
            lists = isinstance(a[name], list)
            facts[name] = [x + y for x, y in zip(a[name], b[name], strict=True)] if lists else a[name] + b[name]
    return facts


def tensor_bytes(message: Any) -> int:
    """The size of all tensors in a nest of tuples and dicts."""
    if isinstance(message, Tensor):
        return message.numel() * message.element_size()
    if isinstance(message, dict):
        return sum(tensor_bytes(part) for part in message.values())
    if isinstance(message, (tuple, list)):
        return sum(tensor_bytes(part) for part in message)
    return 0

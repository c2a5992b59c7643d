"""Packets over Flower's grid: to the nodes that are registered under the sites' names, and back as they come."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from queue import Empty, Queue
from threading import Event, Thread
from typing import Any, TypeVar

from flwr.app import Message, MessageType

from semifl.deploy.answers import short
from semifl.deploy.flower.packets import unwrap, wrap
from semifl.deploy.remote import Answer
from semifl.errors import UserError

T = TypeVar("T")
LOOK = 0.5  # seconds between two looks for replies or nodes; the grid's own loop sleeps three
NOT_CONNECTED = "its node is not connected"
NO_LINK = "the SuperLink does not answer"
NODE_LOST = "its node was lost before it answered"
SAYS_MORE = "; the node's own log says more"
# Flower's reasons are written for programmers and may name files, so the hub keeps the kind of error alone.
REASONS = {1: "its node cannot load the app", 2: "its app raised an error", 3: NODE_LOST, 4: NODE_LOST, 5: NODE_LOST,
           7: "its node does not accept the app", 8: "its app died: killed, or out of memory"}  # fmt: skip


class FlowerTransport:
    """A Transport over a Grid. Who a node is, the SuperLink knows: the name under which its key was registered.

    Every call of the grid runs in a thread of its own. Flower tries again and again to reach a SuperLink that is gone,
    or to fetch a reply whose node was lost while it sent; neither the deadline, nor the other sites, nor the signal
    that ends this process may wait for that.
    """

    def __init__(self, grid: Any) -> None:
        self._grid = grid

    def exchange(self, packets: Mapping[str, bytes], seconds: float, largest: int) -> Iterator[Answer]:
        """Each site's answer as it comes; silence until the time is up, or a lost node, is an answer without data.

        Flower gathers an answer of any size before anybody can look at it (`docs/flower.md`).
        """
        began = time.monotonic()
        sent = _aside(lambda: self._send(packets, seconds), seconds)
        waiting = sent or {}
        for site in packets.keys() - waiting.values():
            yield Answer(site, None, NOT_CONNECTED if sent is not None else NO_LINK, time.monotonic() - began)
        arrived: Queue[tuple[str, Any]] = Queue()
        over = Event()
        for number in waiting:
            Thread(target=self._fetch, args=(number, arrived, over), daemon=True).start()
        while waiting and (left := began + seconds - time.monotonic()) > 0:
            try:
                number, reply = arrived.get(timeout=min(left, LOOK))
            except Empty:
                continue
            if isinstance(reply, Exception):
                over.set()
                raise reply
            yield _answer(waiting.pop(number), reply, time.monotonic() - began)
        over.set()
        for site in waiting.values():
            yield Answer(site, None, f"no answer within {seconds:g} seconds", time.monotonic() - began)

    def nodes(self) -> dict[str, int]:
        """The nodes that are connected now, by the name of their site."""
        named: dict[str, int] = {}
        for node in self._grid.get_nodes():
            if node.name in named:
                raise UserError(f"two nodes are registered as {node.name}: unregister one of them")
            if node.name:
                named[node.name] = node.node_id
        return named

    def gather(self, sites: tuple[str, ...], count: int, seconds: float) -> int:
        """Wait until `count` of the sites are connected, at most for `seconds`; how many are."""
        end = time.monotonic() + seconds
        while True:
            here = len(set(sites) & set(_aside(self.nodes, max(end - time.monotonic(), LOOK)) or {}))
            if here >= count or time.monotonic() >= end:
                return here
            time.sleep(LOOK)

    def _send(self, packets: Mapping[str, bytes], seconds: float) -> dict[str, str]:
        """Which message went to which of the sites that are connected. Flower forgets it when its time is up."""
        nodes = self.nodes()
        sites = [site for site in packets if site in nodes]
        messages = [Message(wrap(packets[site], site), nodes[site], MessageType.TRAIN, ttl=seconds) for site in sites]
        numbers = list(self._grid.push_messages(messages)) if messages else []
        if len(numbers) != len(sites) or not all(numbers):
            raise UserError("the SuperLink does not take the packets; its log says why")
        return dict(zip(numbers, sites, strict=True))

    def _fetch(self, number: str, arrived: Queue[tuple[str, Any]], over: Event) -> None:
        """Look for the reply to one message until it is there or nobody waits for it any longer."""
        try:
            while not over.is_set():
                for reply in self._grid.pull_messages([number]):
                    arrived.put((number, reply))
                    return
                over.wait(LOOK)
        except Exception as error:
            arrived.put((number, error))


def _aside(work: Callable[[], T], seconds: float) -> T | None:
    """The result of a call that may hang, or None when the time is up; short naps, so that signals are noticed."""
    done: Queue[tuple[T | None, Exception | None]] = Queue()

    def run() -> None:
        try:
            done.put((work(), None))
        except Exception as error:
            done.put((None, error))

    Thread(target=run, daemon=True).start()
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        try:
            result, error = done.get(timeout=min(left, LOOK))
        except Empty:
            continue
        if error:
            raise error
        return result
    return None


def _answer(site: str, reply: Any, seconds: float) -> Answer:
    if reply.has_error():
        return Answer(
            site, None, REASONS.get(reply.error.code, f"Flower's error {reply.error.code}") + SAYS_MORE, seconds
        )
    try:
        packet, sender = unwrap(reply.content)
    except UserError as error:
        return Answer(site, None, str(error), seconds)
    if sender != site:
        return Answer(site, None, f"its node calls itself {short(sender)}: register it under that name", seconds)
    return Answer(site, packet, "", seconds)

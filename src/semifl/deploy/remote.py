"""A federation whose clients are other people's machines: packets out, replies in, whatever engine carries them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

import torch

from semifl.deploy import answers, wire
from semifl.deploy.answers import Spent
from semifl.deploy.settings import Settings
from semifl.errors import RunStopped, UserError
from semifl.federation.local import draw, inspected, whole
from semifl.federation.tally import Tally
from semifl.federation.world import ClientId, Cohort, Message, Method, Reply, Round, Update
from semifl.learning.batchnorm import BatchNormStats
from semifl.learning.weights import Shapes, Weights, norm, shapes
from semifl.toml import Table

NO_ANSWER = ("failed", "late")  # outcomes after which a site may be asked again


class Answer(NamedTuple):
    """What came back from one site, or why nothing did."""

    site: str
    data: bytes | None
    reason: str
    seconds: float


class Transport(Protocol):
    """An engine, as far as a federation needs it."""

    def exchange(self, packets: Mapping[str, bytes], seconds: float, largest: int) -> Iterator[Answer]:
        """Bring each site its packet; exactly one answer for each, as they come and at the latest when time is up.

        An answer of more than `largest` bytes is none. An engine that can refuses it before its bytes are gathered.
        """
        ...


class NotEnoughSites(RunStopped):
    """Too few sites answer to go on now; the round will be repeated, with others in place of the silent ones."""

    def __init__(self, message: str, round_index: int, silent: Sequence[str]) -> None:
        super().__init__(message)
        self.round = round_index
        self.silent = tuple(silent)


class Layer(NamedTuple):
    """Of the model's BatchNorm."""

    channels: int
    values: int = 0  # of each channel that one picture brings; 0 where the forward pass does not use the layer


class Known(NamedTuple):
    """What the hub knows of its sites before a round."""

    refused: Mapping[str, str] = {}
    silent: Collection[str] = ()  # when this round was tried before
    pictures: Mapping[str, int] = {}  # as sites told; 0 where they do not


class Heard(NamedTuple):
    """A site's reply, and what it says this has cost of its privacy."""

    reply: Reply
    spent: Spent | None = None


class Told(NamedTuple):
    """What became of one site's turn, for whoever watches."""

    site: str
    outcome: str
    reason: str
    seconds: float
    round: int | None  # None: it was asked for its BatchNorm statistics
    spent: Spent | None = None  # of a site that adds noise


class RemoteFederation:
    """The sites of a project, numbered in the order of their names."""

    def __init__(
        self,
        transport: Transport,
        order: Table,
        settings: Settings,
        method: Method,
        layers: Mapping[str, Layer],
        tally: Tally,
        tell: Callable[[Told], None],
        known: Known,
    ) -> None:
        self._transport = transport
        self._order = order
        self._sites: list[str] = order["sites"]
        self._classes = len(order["facts"]["class_names"])
        self._settings = settings
        self._method = method
        self._layers = layers
        self._tally = tally
        self._tell = tell
        self._known = known

    def __len__(self) -> int:
        return len(self._sites)

    @property
    def max_share(self) -> float:
        return self._settings.max_share

    def everyone(self) -> Cohort:
        return tuple(range(len(self._sites)))

    def sample(self, count: int, rng: torch.Generator) -> Cohort:
        """As in a simulation, but others take the places of sites that were silent or, worse, have refused."""
        drawn = draw(len(self._sites), count, rng)
        others = [client for client in self.everyone() if client not in drawn]
        in_turn = [*drawn, *(others[place] for place in torch.randperm(len(others), generator=rng))]
        return tuple(sorted(sorted(in_turn, key=self._rank)[:count]))

    def _rank(self, client: ClientId) -> int:
        """Whoever was silent may be back; whoever has refused answers the same until the next job."""
        site = self._sites[client]
        return 2 if site in self._known.refused else 1 if site in self._known.silent else 0

    def each(
        self, cohort: Cohort, message: Message, t: Round, own: Callable[[ClientId], Message] | None = None
    ) -> Iterator[Reply]:
        packets = self._packets(cohort, message, t, own)
        sent = {client: self._method.sent_weights(whole(message, own(client) if own else None)) for client in cohort}
        largest = max((wire.room_for(_bytes(shapes(weights))) for weights in sent.values()), default=0)

        def read(answer: Answer) -> Heard:
            client = self._sites.index(answer.site)
            heard = self._read(client, answer, largest)
            reply = inspected(heard.reply, sent[client])
            return heard._replace(reply=_moderate(reply, sent[client], self._settings.largest_update))

        arriving = self._asked(packets, read, t, largest)
        for reply in self._in_order(cohort, arriving):
            self._tally.received(reply)
            yield reply

    def statistics(self, weights: Weights, of: Cohort, own: BatchNormStats | None = None) -> Iterator[BatchNormStats]:
        """Of the sites that answer; a site whose policy keeps them has refused the order already."""
        if not of:
            return
        packet = wire.pack("statistics", {"order": self._order}, weights, self._settings.precision)
        packets = {self._sites[client]: packet for client in of if self._sites[client] not in self._known.refused}
        largest = wire.room_for(8 * layer.channels for layer in self._layers.values() for _ in ("mean", "var"))
        with self._tally.phase("statistics"):
            heard = {each.site: each for each in self._transport.exchange(packets, self._settings.deadline, largest)}
        for site in packets:  # in the order of the clients, for sums depend on it
            self._tally.bytes_down += wire.tensor_bytes(packet)
            try:
                stats = answers.believable(self._read_statistics(heard[site], largest), own or {}, self._most(site))
            except UserError as error:
                self._tell(Told(site, "without statistics", str(error), heard[site].seconds, None))
                continue
            self._tally.bytes_up += wire.tensor_bytes(heard[site].data or b"")
            yield stats

    def _packets(
        self, cohort: Cohort, message: Message, t: Round, own: Callable[[ClientId], Message] | None
    ) -> dict[str, bytes]:
        facts = {
            "order": self._order,
            "round": t.index,
            "progress": t.progress,
            "precision": self._settings.precision,
            "largest_update": self._settings.largest_update,
        }
        common = b"" if own else wire.pack("task", facts, (message, None), self._settings.precision)
        return {
            self._sites[client]: wire.pack("task", facts, (message, own(client)), self._settings.precision)
            if own
            else common
            for client in cohort
        }

    def _asked(
        self, packets: dict[str, bytes], read: Callable[[Answer], Heard], t: Round, largest: int
    ) -> Iterator[Reply]:
        """Each site's reply as it comes; while too few have answered, those who have not are asked again."""
        answered, waiting = set[str](), dict(packets)
        for client, site in enumerate(self._sites):
            if site in waiting and (reason := self._known.refused.get(site)) is not None:
                del waiting[site]
                self._tell(Told(site, "failed", reason, 0.0, t.index))
                yield Reply(client, None, "failed", reason, {})
        enough = min(self._settings.min_updates, len(waiting))
        asked = tuple(waiting)
        for attempt in range(1, self._settings.attempts + 1):
            missing: list[Reply] = []
            for answer in self._transport.exchange(waiting, self._settings.deadline, largest):
                self._tally.bytes_down += wire.tensor_bytes(waiting[answer.site])
                reply, spent = read(answer)
                self._tell(Told(answer.site, reply.outcome, reply.reason, answer.seconds, t.index, spent))
                if reply.outcome in NO_ANSWER:
                    missing.append(reply)
                    continue
                answered |= {answer.site} if reply.outcome != "rejected" else set()
                yield reply
            if len(answered) >= enough:
                yield from missing
                return
            if attempt == self._settings.attempts or not missing:  # who was rejected would answer the same again
                break
            waiting = {self._sites[reply.client]: packets[self._sites[reply.client]] for reply in missing}
        raise NotEnoughSites(
            f"round {t.index}: {len(answered)} of {len(packets)} sites answered, and deploy.min_updates asks for "
            f"{self._settings.min_updates}",
            t.index,
            [site for site in asked if site not in answered],
        )

    def _most(self, site: str) -> dict[str, int]:
        """Of each layer the values that a site can have."""
        pictures = self._pictures(site)
        return {name: pictures * layer.values for name, layer in self._layers.items() if pictures and layer.values}

    def _pictures(self, site: str) -> int:
        """Return how many pictures a site can have: as it told when it joined, or the most that anybody told."""
        told = self._known.pictures
        return told.get(site) or max(told.values(), default=0)

    def _read_statistics(self, answer: Answer, largest: int) -> BatchNormStats:
        if answer.data is None:
            raise UserError(answer.reason)
        return answers.read_statistics(
            answer.data, largest, {name: layer.channels for name, layer in self._layers.items()}
        )

    def _in_order(self, cohort: Cohort, arriving: Iterable[Reply]) -> Iterator[Reply]:
        """Replies in the order of the cohort: sums of floating-point numbers depend on it."""
        ready: dict[ClientId, Reply] = {}
        replies = iter(arriving)
        for client in cohort:
            with self._tally.phase("clients"):
                while client not in ready:
                    reply = next(replies)
                    ready[reply.client] = reply
            yield ready.pop(client)
        with self._tally.phase("clients"):  # whether the round counts at all is decided after the last reply
            for reply in replies:
                ready[reply.client] = reply

    def _read(self, client: ClientId, answer: Answer, largest: int) -> Heard:
        """An answer as a Reply: nothing in it is believed before it has been looked at."""
        if answer.data is None:
            return Heard(Reply(client, None, "late", answer.reason, {}))
        try:
            said, change = answers.read_reply(
                answer.data, largest, self._classes, self._known.pictures.get(answer.site, 0)
            )
        except answers.Declined as error:
            return Heard(Reply(client, None, "failed", str(error), {}))
        except UserError as error:
            return Heard(Reply(client, None, "rejected", str(error), {}))
        signals = said.signals.model_dump(exclude_none=True)
        if said.outcome == "abstained":
            return Heard(Reply(client, None, "abstained", "", signals), said.spent)
        size = wire.tensor_bytes(answer.data)
        examples = min(said.examples or 0, self._pictures(answer.site) or answers.LARGEST)
        update = Update(change, examples, dict(said.terms), {}, size)
        return Heard(Reply(client, update, "trained", "", signals), said.spent)


def _bytes(shapes: Shapes) -> list[int]:
    return [math.prod(shape) * dtype.itemsize for shape, dtype in shapes.values()]


def _moderate(reply: Reply, sent: Weights, limit: float) -> Reply:
    """Turn away an update that would carry the model away, however well-formed it is."""
    if reply.update is None or not limit:
        return reply
    length, size = norm(reply.update.change), norm(sent) or 1.0
    if length <= limit * size:
        return reply
    reason = f"its update is {length / size:.0f} times as long as the model, and deploy.largest_update is {limit:g}"
    return reply._replace(update=None, outcome="rejected", reason=reason)

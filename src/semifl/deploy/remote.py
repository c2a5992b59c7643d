"""A federation whose clients are other people's machines: letters out, replies in, whatever engine carries them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Protocol

import torch

from semifl.deploy import wire
from semifl.deploy.settings import Settings
from semifl.errors import RunStopped, UserError
from semifl.experiments.toml import Table
from semifl.federation.local import draw, inspected
from semifl.federation.tally import Tally
from semifl.federation.world import ClientId, Cohort, Message, Reply, Round, Task, Update
from semifl.learning.batchnorm import BatchNormStats, Moments
from semifl.learning.weights import Shapes, Snapshot, Weights, distance, zeros_like

LARGEST = 2**53  # above it a number of anything is a lie
LONGEST_REASON = 200  # characters of what a site says went wrong
NO_ANSWER = ("failed", "late")  # outcomes after which a site may be asked again


class Answer(NamedTuple):
    """What came back from one site, or why nothing did."""

    site: str
    data: bytes | None
    reason: str
    seconds: float


class Post(Protocol):
    """An engine, as far as a federation needs it."""

    def exchange(self, letters: Mapping[str, bytes], seconds: float) -> Iterator[Answer]:
        """Bring each site its letter; exactly one answer for each, as they come and at the latest when time is up."""
        ...


class NotEnoughSites(RunStopped):
    """Too few sites answer to go on now; the round will be repeated when more of them are back."""


class Told(NamedTuple):
    """What became of one site's turn, for whoever watches."""

    site: str
    outcome: str
    reason: str
    seconds: float
    round: int | None  # None: it was asked for its BatchNorm statistics
    spent: dict[str, float] | None = None  # ε and δ, of a site that adds noise


class RemoteFederation:
    """The sites of a project, numbered in the order of their names."""

    def __init__(
        self,
        post: Post,
        order: Table,
        settings: Settings,
        tally: Tally,
        refused: Mapping[str, str],
        tell: Callable[[Told], None],
        layers: Mapping[str, int],
    ) -> None:
        self._post = post
        self._order = order
        self._sites: list[str] = order["sites"]
        self._classes = len(order["facts"]["class_names"])
        self._settings = settings
        self._tally = tally
        self._refused = refused
        self._tell = tell
        self._layers = layers  # BatchNorm's, and how many channels each has

    def __len__(self) -> int:
        return len(self._sites)

    def everyone(self) -> Cohort:
        return tuple(range(len(self._sites)))

    def sample(self, count: int, rng: torch.Generator) -> Cohort:
        return draw(len(self._sites), count, rng)

    def each(
        self,
        cohort: Cohort,
        task: Task,
        message: Message,
        t: Round,
        expected: Shapes | Callable[[ClientId], Shapes],
        own: Callable[[ClientId], Message] | None = None,
    ) -> Iterator[Reply]:
        letters = self._letters(cohort, task, message, t, own)

        def read(answer: Answer) -> Reply:
            client = self._sites.index(answer.site)
            try:
                reply = self._read(client, answer)
                reply = inspected(reply, expected(client) if callable(expected) else expected)
                return _moderate(reply, (message, own(client) if own else None), self._settings.largest_update)
            except Exception as error:  # whatever a site may think of: it must not stop the others
                return Reply(client, None, "rejected", f"its answer cannot be read ({type(error).__name__})", {})

        arriving = self._asked(letters, read, t)
        for reply in self._in_order(cohort, arriving):
            self._tally.received(reply)
            yield reply

    def statistics(self, weights: Weights, of: Cohort) -> Iterator[BatchNormStats]:
        """Of the sites that answer; a site whose policy keeps them has refused the order already."""
        if not of:
            return
        letter = wire.pack("statistics", {"order": self._order}, weights, self._settings.precision)
        letters = {self._sites[client]: letter for client in of if self._sites[client] not in self._refused}
        with self._tally.phase("statistics"):
            answers = {each.site: each for each in self._post.exchange(letters, self._settings.deadline)}
        for site in letters:  # in the order of the clients, for sums depend on it
            self._tally.bytes_down += wire.tensor_bytes(letter)
            try:
                stats, size = self._read_statistics(answers[site])
            except Exception as error:  # whatever a site may think of
                reason = str(error) if isinstance(error, UserError) else f"they cannot be read ({type(error).__name__})"
                self._tell(Told(site, "without statistics", reason, answers[site].seconds, None))
                continue
            self._tally.bytes_up += size
            yield stats

    def _letters(
        self, cohort: Cohort, task: Task, message: Message, t: Round, own: Callable[[ClientId], Message] | None
    ) -> dict[str, bytes]:
        facts = {
            "order": self._order,
            "task": getattr(task, "__name__", ""),
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

    def _asked(self, letters: dict[str, bytes], read: Callable[[Answer], Reply], t: Round) -> Iterator[Reply]:
        """Each site's reply as it comes; while too few have answered, those who have not are asked again."""
        answered, waiting = 0, dict(letters)
        for client, site in enumerate(self._sites):
            if site in self._refused and site in waiting:
                del waiting[site]
                self._tell(Told(site, "failed", self._refused[site], 0.0, t.index))
                yield Reply(client, None, "failed", self._refused[site], {})
        for attempt in range(1, self._settings.attempts + 1):
            missing: list[Reply] = []
            for answer in self._post.exchange(waiting, self._settings.deadline):
                self._tally.bytes_down += wire.tensor_bytes(waiting[answer.site])
                reply = read(answer)
                self._tell(Told(answer.site, reply.outcome, reply.reason, answer.seconds, t.index, _spent(answer)))
                if reply.outcome in NO_ANSWER:
                    missing.append(reply)
                    continue
                answered += reply.outcome != "rejected"
                yield reply
            if answered >= min(self._settings.min_updates, len(letters)):
                yield from missing
                return
            if attempt == self._settings.attempts or not missing:  # who was rejected would answer the same again
                break
            waiting = {self._sites[reply.client]: letters[self._sites[reply.client]] for reply in missing}
        raise NotEnoughSites(
            f"round {t.index}: {answered} of {len(letters)} sites answered, and deploy.min_updates asks for "
            f"{self._settings.min_updates}"
        )

    def _read_statistics(self, answer: Answer) -> tuple[BatchNormStats, int]:
        """Of every BatchNorm layer, or of none where a site has too few pictures for a variance."""
        if answer.data is None:
            raise UserError(answer.reason)
        letter = wire.unpack(answer.data, {"Moments": Moments})
        if letter.kind != "statistics":
            raise UserError(short(letter.facts.get("reason", "its letter holds none")))
        stats = letter.body
        if stats and stats.keys() != self._layers.keys():
            raise UserError("they are not of the model's layers")
        for name, moments in stats.items():
            if not _is_moments(moments, self._layers[name]):
                raise UserError(f"those of layer {name!r} are not sound")
        return stats, wire.tensor_bytes(answer.data)

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

    def _read(self, client: ClientId, answer: Answer) -> Reply:
        """An answer as a Reply: nothing in it is believed before it has been looked at."""
        if answer.data is None:
            return Reply(client, None, "late", answer.reason, {})
        try:
            letter = wire.unpack(answer.data, {})
            if letter.kind in ("failed", "refused"):
                return Reply(client, None, "failed", short(letter.facts.get("reason")), {})
            return self._reply(client, letter, wire.tensor_bytes(answer.data))
        except UserError as error:
            return Reply(client, None, "rejected", str(error), {})

    def _reply(self, client: ClientId, letter: wire.Letter, size: int) -> Reply:
        signals = clean_signals(letter.facts.get("signals"), self._classes)
        if letter.kind != "reply" or letter.facts.get("outcome") not in ("trained", "abstained"):
            raise UserError("its letter is no reply")
        if letter.facts["outcome"] == "abstained":
            return Reply(client, None, "abstained", "", signals)
        examples, payload = letter.facts.get("examples"), letter.body
        if not isinstance(examples, int) or not 0 <= examples < LARGEST or not _is_weights(payload):
            raise UserError("its reply has no proper weights or number of examples")
        facts = _numbers(letter.facts.get("facts"))
        return Reply(client, Update(payload, examples, facts, {}, size), "trained", "", signals)


def clean_signals(given: Any, classes: int) -> dict[str, Any]:
    """Counts and sums as a client makes them; what has another form is left out, for records are built on them."""
    lengths = {"classes": classes, "predicted": classes, "confidence_bins": 10}
    signals: dict[str, Any] = {
        name: value
        for name, value in _numbers(given).items()
        if name in ("images", "confident", "confidence", "lr", "own_right", "own_total") and value >= 0
    }
    for name, length in lengths.items():
        counts = given.get(name) if isinstance(given, dict) else None
        if (
            isinstance(counts, list)
            and len(counts) == length
            and all(type(n) is int and 0 <= n < LARGEST for n in counts)
        ):
            signals[name] = counts
    return signals


def _numbers(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        return {}
    return {str(name): value for name, value in given.items() if type(value) in (int, float) and abs(value) < LARGEST}


def _is_weights(payload: Any) -> bool:
    return isinstance(payload, dict) and all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in payload.items()
    )


def _moderate(reply: Reply, message: Any, limit: float) -> Reply:
    """Turn away an update that would carry the model away, however well-formed it is."""
    if reply.update is None or not limit:
        return reply
    payload, sent = reply.update.payload, message[0]
    origin = (
        sent.weights if isinstance(sent, Snapshot) and payload.keys() <= sent.weights.keys() else zeros_like(payload)
    )
    moved = distance(payload, {name: origin[name] for name in payload})
    size = _size(message)
    if moved <= limit * size:
        return reply
    reason = f"its update is {moved / size:.0f} times as long as the model, and deploy.largest_update is {limit:g}"
    return reply._replace(update=None, outcome="rejected", reason=reason)


def _size(message: Any) -> float:
    """The norm of the weights in a message, or 1 if they are all zero."""
    if isinstance(message, torch.Tensor):
        return float(torch.linalg.vector_norm(message.double())) if message.is_floating_point() else 0.0
    if isinstance(message, Snapshot):
        return _size(message.weights)
    parts = message.values() if isinstance(message, dict) else message if isinstance(message, tuple) else ()
    return math.sqrt(sum(_size(part) ** 2 for part in parts)) or 1.0


def _is_moments(moments: Any, channels: int) -> bool:
    if not isinstance(moments, Moments) or type(moments.number) is not int or not 0 < moments.number < LARGEST:
        return False
    mean, var = moments.mean, moments.var
    sound = all(isinstance(each, torch.Tensor) and each.shape == (channels,) for each in (mean, var))
    return sound and bool(mean.isfinite().all() and var.isfinite().all() and (var >= 0).all())


def _spent(answer: Answer) -> dict[str, float] | None:
    if answer.data is None:
        return None
    try:
        return _numbers(wire.facts_of(answer.data).get("spent")) or None
    except UserError:
        return None


def short(reason: Any) -> str:
    words = "".join(sign if sign.isprintable() else " " for sign in str(reason))
    return words[:LONGEST_REASON]

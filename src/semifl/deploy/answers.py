"""What the hub reads in a site's answer: every word of it has a form, and an answer that has another form is none.

The other side, what a site writes, is `leaving.py`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeVar

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from semifl.deploy import wire
from semifl.errors import UserError
from semifl.federation.signals import BINS, SIGNALS
from semifl.learning.batchnorm import BatchNormStats, Moments

LARGEST = 2**53  # above it a number of anything is a lie
LONGEST_WORD = 200  # characters of anything that a site says in words
FARTHEST = 10.0  # standard deviations of the hub's between its statistics and a site's: other scanners are a few off
LEAST_VARIANCE = 1e-5  # what BatchNorm itself adds to one
MOST_TERMS = 64  # named loss terms: many times what any objective has

Count = Annotated[int, Field(ge=0, lt=LARGEST)]
Number = Annotated[float, Field(gt=-LARGEST, lt=LARGEST, allow_inf_nan=False)]
Sum = Annotated[float, Field(ge=0, lt=LARGEST, allow_inf_nan=False)]
Word = Annotated[str, Field(max_length=100)]


class Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


T = TypeVar("T", bound=Form)


class Hello(Form):
    semifl: Word
    torch: Word
    pictures: Count = 0


class Spent(Form):
    epsilon: Sum
    delta: Annotated[float, Field(gt=0, lt=1)]


FORMS: dict[str, Any] = {
    "count": Count,
    "sum": Sum,
    "rate": Sum,
    "classes": list[Count],
    "bins": Annotated[list[Count], Field(min_length=BINS, max_length=BINS)],
}
FIELDS: dict[str, Any] = {each.name: (FORMS[each.form] | None, None) for each in SIGNALS if each.share}
Signals: Any = create_model("Signals", __base__=Form, **FIELDS)  # what a client counts, where its policy lets it out


class Reply(Form):
    outcome: Literal["trained", "abstained"]
    signals: Signals
    spent: Spent | None = None
    examples: Count | None = None
    terms: Annotated[dict[Word, Number], Field(max_length=MOST_TERMS)] = {}


def read_hello(data: bytes, largest: int) -> Hello:
    packet = _open(data, largest, "hello", {})
    return _in_form(Hello, packet.facts)


def read_reply(data: bytes, largest: int, classes: int, pictures: int = 0) -> tuple[Reply, dict[str, torch.Tensor]]:
    """Return the words of a reply, and the change of one that has trained; 0 `pictures`: the site told no number."""
    packet = _open(data, largest, "reply", {})
    reply = _in_form(Reply, packet.facts)
    signals: dict[str, Any] = dict(reply.signals)
    for counts in (signals[each.name] for each in SIGNALS if each.form == "classes"):
        if counts is not None and len(counts) != classes:
            raise UserError(f"its answer counts {len(counts)} classes, and the run has {classes}")
    _refuse_inconsistent(signals, pictures)
    if reply.outcome == "abstained":
        return reply, {}
    if reply.examples is None or not _is_weights(packet.body):
        raise UserError("its answer has no proper weights or number of examples")
    return reply, packet.body


def _refuse_inconsistent(signals: dict[str, Any], pictures: int) -> None:
    """Refuse a count of more pictures than the whole that it is a part of, or than the site told when it joined."""
    images, own = signals["images"], signals["own_total"]
    most = pictures or LARGEST
    if images is not None and images > most:
        raise UserError(f"its answer is about {images} images, and it told of {pictures} when it joined")
    for name in (
        each.name for each in SIGNALS if each.share and each.is_of_pictures and signals[each.name] is not None
    ):
        counts = signals[name] if isinstance(signals[name], list) else [signals[name]]
        whole = own if name.startswith("own_") else images
        if max(counts, default=0) > (most if whole is None else whole) + 0.5:  # a sum of shares has rounding errors
            raise UserError(f"its answer has more in {name!r} than the images that it is about")


def read_statistics(data: bytes, largest: int, layers: dict[str, int]) -> BatchNormStats:
    """Of every BatchNorm layer, or of none where a site has too few pictures for a variance."""
    stats = _open(data, largest, "statistics", {"Moments": Moments}).body
    if not isinstance(stats, dict) or (stats and stats.keys() != layers.keys()):
        raise UserError("its statistics are not of the model's layers")
    for name, moments in stats.items():
        if not _is_moments(moments, layers[name]):
            raise UserError(f"its statistics of layer {name!r} are not sound")
    return stats


def believable(stats: BatchNormStats, own: BatchNormStats, most: dict[str, int]) -> BatchNormStats:
    """A site's statistics, if they are not far from the hub's `own`; of more values than it can have, for `most`.

    Far is a mean FARTHEST standard deviations off, or a variance FARTHEST² times as large, both in units of the hub's
    channel and of its whole layer: a channel that says little of a few labeled pictures may say more of others.
    """
    for name in stats.keys() & own.keys():
        (_, mean, var), (_, theirs, variance) = own[name], stats[name]
        farthest = FARTHEST**2 * (var + var.mean() + LEAST_VARIANCE)
        if bool(((theirs - mean) ** 2 > farthest).any() or (variance > farthest).any()):
            raise UserError(f"its statistics of layer {name!r} are not of pictures like the hub's")
    return {name: each._replace(number=min(each.number, most.get(name, LARGEST))) for name, each in stats.items()}


class Declined(UserError):
    """The site answers that it will not, or could not; the sentence is its own."""


def short(said: Any) -> str:
    words = "".join(sign if sign.isprintable() else " " for sign in str(said))
    return words[:LONGEST_WORD]


def _open(data: bytes, largest: int, kind: str, named: dict[str, type]) -> wire.Packet:
    if len(data) > largest:
        raise UserError(f"its answer has {len(data)} bytes, and at most {largest} were asked for")
    try:
        packet = wire.unpack(data, named)
    except UserError:
        raise
    except Exception as error:  # whatever a site may think of: it must not stop the others
        raise UserError(f"its answer cannot be read ({type(error).__name__})") from error
    if packet.kind in ("failed", "refused"):
        raise Declined(short(packet.facts.get("reason", "it does not say why")))
    if packet.kind != kind:
        raise UserError(f"its answer is no {kind}")
    return packet


def _in_form(form: type[T], facts: dict[str, Any]) -> T:
    try:
        return form.model_validate(facts)
    except (ValidationError, RecursionError) as error:
        where = ".".join(map(str, error.errors()[0]["loc"])) if isinstance(error, ValidationError) else ""
        raise UserError(f"its answer is not in form at {short(where)!r}") from error


def _is_weights(payload: Any) -> bool:
    return isinstance(payload, dict) and all(
        isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in payload.items()
    )


def _is_moments(moments: Any, channels: int) -> bool:
    if not isinstance(moments, Moments) or type(moments.number) is not int or not 0 < moments.number < LARGEST:
        return False
    mean, var = moments.mean, moments.var
    sound = all(
        isinstance(each, torch.Tensor) and each.shape == (channels,) and each.dtype == torch.float64
        for each in (mean, var)
    )
    return sound and bool(mean.isfinite().all() and var.isfinite().all() and (var >= 0).all())

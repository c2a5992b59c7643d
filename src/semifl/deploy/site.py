"""A site of a real federation, whatever engine carries its packets: it follows orders within its policy.

Where the engine's process lives for many packets, the trainer is a process of its own: if it dies, the site answers
that it failed and has a new one for the next packet.
"""

from __future__ import annotations

import fcntl
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch

from semifl.data.dataset import UNKNOWN
from semifl.data.partition import Holdings
from semifl.deploy import leaving, wire
from semifl.deploy.allowance import Allowance
from semifl.deploy.keeping import Keeping
from semifl.deploy.leash import in_time
from semifl.deploy.order import Accepted, TooMuchHere, accept, refuse_memory, refuse_other_weights, refuse_work
from semifl.deploy.pictures import OTHER_PICTURES, SitePictures, compare_with_before, count_pictures, read_site
from semifl.deploy.policy import Policy
from semifl.deploy.privacy import Ledger
from semifl.deploy.trainer import Trainer, TrainerFailed
from semifl.deploy.wire import Packet
from semifl.errors import UserError
from semifl.federation.local import Visit, client_statistics, visit, whole
from semifl.federation.memory import ClientMemory
from semifl.federation.sites import Place, grade_block
from semifl.federation.world import Method, Reply, Round
from semifl.learning.batchnorm import Moments
from semifl.learning.evaluation import blocks
from semifl.learning.weights import Snapshot
from semifl.words import printable

log = logging.getLogger(__name__)

DECODED = "decoded.json"  # the file that says where decoded pictures are kept
LARGEST_ORDER = 1 << 20  # bytes
MODELS_IN_A_PACKET = 8  # FedMatch sends the most: two parts, and its helpers
OWN_MATTER = "has a problem with its own pictures or files; its own log says which"


class Ready(NamedTuple):
    """What a site has made ready for an order; no trainer where it cannot follow, and that must not be told."""

    order: Any
    accepted: Accepted
    pictures: SitePictures | None = None
    trainer: Trainer | None = None


@dataclass
class Site:
    """One site: its name, its pictures, its policy, and the folder where it remembers."""

    name: str
    data: Path
    labels: Path | None
    policy: Policy
    folder: Path
    device: str = "cpu"
    trains_apart: bool = True  # in a process of its own
    _ready: Ready | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._keeping = Keeping(self.folder / "runs", self.policy)
        self._allowance = Allowance(self.policy, Ledger(self.folder / "privacy.json"))

    def answer(self, data: bytes) -> bytes:
        """The reply to a packet. Whatever goes wrong is part of the reply, told without a path or a picture."""
        try:
            ready = self._willing(wire.facts_of(data).get("order"))
            with alone(self.folder / ".packets"):
                return self._follow(wire.unpack(data, named_tuples(ready.accepted.method)), ready)
        except UserError as error:
            log.warning("refused: %s", printable(error))
            return leaving.refused(self._discreet(str(error)))
        except TrainerFailed as error:
            return leaving.failed(str(error))
        except Exception as error:
            log.exception("failed")
            return leaving.failed(f"it failed ({type(error).__name__}); its own log says more")

    @property
    def largest_packet(self) -> int:
        """Bytes of a packet that the hub may send: before an order is accepted, an order and nothing more."""
        parameters = self._ready.accepted.parameters if self._ready else 0
        return LARGEST_ORDER + MODELS_IN_A_PACKET * 4 * parameters

    def close(self) -> None:
        if self._ready and self._ready.trainer:
            self._ready.trainer.close()

    def forget_features(self) -> None:
        """When a run is over."""
        self._keeping.forget_features()

    def _willing(self, order: Any) -> Ready:
        """Check an order once; the pictures are read for the first one."""
        if self._ready is None or order != self._ready.order:
            self.close()
            accepted = accept(order, self.name, self.policy)
            try:
                ready = self._prepare(order, accepted)
            except TooMuchHere as error:
                if not self.policy.privacy.noise:
                    raise
                # To refuse for how many pictures there are would tell of them: noise alone will go out.
                log.warning("%s: as this site adds noise, it does not say so, and sends noise alone", printable(error))
                ready = Ready(order, accepted)
            self._ready = ready
            self._allowance.warn_of_bare_updates()
        return self._ready

    def _prepare(self, order: Any, accepted: Accepted) -> Ready:
        """Read the pictures, if the policy has room for what the order wants with them."""
        # Before any picture is decoded: their number is known.
        with self._own_matters():
            count = count_pictures(self.data)
        refuse_memory(accepted.parameters, accepted.facts, count, self.policy)
        self._keeping.make_room(accepted.run)
        with self._own_matters():
            decoding = in_time(self.policy.limits)
            pictures = read_site(self.data, self.labels, accepted.facts, self.folder / DECODED, decoding)
        if pictures.skipped:
            log.warning("%d files below %s are no readable pictures", pictures.skipped, self.data)
        refuse_work(accepted.method, len(pictures.images), self.policy)
        place = self._make_place(accepted, pictures)
        if note := compare_with_before(pictures.images, self._keeping.folder_of(accepted.run)):
            log.warning("%s: %s", OTHER_PICTURES, note)
        return Ready(order, accepted, pictures, Trainer(place, self.policy.limits, self.trains_apart))

    @contextmanager
    def _own_matters(self) -> Iterator[None]:
        """What is wrong with this site's pictures is for the site: such sentences have numbers and paths in them."""
        try:
            yield
        except UserError as error:
            log.warning("%s", printable(error))
            raise UserError(f"{self.name} {OWN_MATTER}") from error

    def _make_place(self, accepted: Accepted, pictures: SitePictures) -> Place:
        count = len(pictures.images)
        place = Place(
            facts=accepted.facts,
            images=pictures.images,
            holdings=Holdings.of(torch.arange(count), torch.full((count,), accepted.client), accepted.client + 1),
            hidden_labels=torch.full((count,), UNKNOWN),
            graded={"own": pictures.own} if pictures.own else {},
            build=accepted.build,
            device=self.device,
            memory=ClientMemory(self._keeping.folder_of(accepted.run)),
            precision=accepted.precision,
        )
        if getattr(accepted.spec, "views", 0):
            place = self._keeping.with_features(place, accepted)
        place.share()
        return place

    def _follow(self, packet: Packet, ready: Ready) -> bytes:
        if packet.kind == "hello":
            return leaving.hello(self.policy, len(ready.pictures.images) if ready.pictures else 0)
        if packet.kind == "goodbye":
            self.forget_features()
            return leaving.goodbye()
        refuse_other_weights(packet.body, ready.accepted.shapes)
        if packet.kind == "statistics":
            return self._statistics(packet, ready)
        if packet.kind != "task":
            raise UserError(f"the hub's packet asks for {packet.kind[:50]!r}, which no site does")
        return self._take_part(packet, ready)

    def _statistics(self, packet: Packet, ready: Ready) -> bytes:
        if not self.policy.shares_statistics:
            raise UserError("this site's policy keeps its BatchNorm statistics (share.statistics, or privacy.noise)")
        assert ready.pictures  # whoever is unable to take part adds noise, and shares none
        assert ready.trainer
        stats = ready.trainer.run(client_statistics, packet.body, ready.accepted.client)
        return leaving.statistics(stats, self.policy, len(ready.pictures.images))

    def _take_part(self, packet: Packet, ready: Ready) -> bytes:
        accepted = ready.accepted
        index, progress = int(packet.facts["round"]), float(packet.facts["progress"])
        t = Round(index, progress, accepted.seed.under("round", index))
        message, own = packet.body
        sent = accepted.method.sent_weights(whole(message, own))
        reply = Reply(accepted.client, None, "abstained", "", {})
        if self._allowance.affords(sent, packet.facts.get("largest_update")):
            if ready.trainer:
                reply = ready.trainer.run(visit, message, Visit(accepted.client, accepted.method, t, own))
                if model := accepted.method.sent_model(whole(message, own)):
                    reply = reply._replace(facts=reply.facts | self._own_accuracy(model, ready))
            reply = self._allowance.release(reply, sent)
        precision: wire.Precision = "fp16" if packet.facts.get("precision") == "fp16" else "fp32"
        return leaving.reply(reply, self.policy, self._allowance.spent(), precision)

    def _own_accuracy(self, model: Snapshot, ready: Ready) -> dict[str, int]:
        """How many of the site's own labels the model that was sent gets right, if that may be told."""
        assert ready.pictures
        assert ready.trainer
        own = ready.pictures.own
        if not self.policy.share.accuracy or not own or len(own[1]) < self.policy.limits.minimum_examples:
            return {}
        right = total = 0
        for block in blocks(len(own[1])):
            try:
                score = ready.trainer.run(grade_block, model, ("own", block.start, block.stop))
            except TrainerFailed:
                return {}
            right, total = right + int(score.confusion.diagonal().sum()), total + int(score.confusion.sum())
        return {"own_right": right, "own_total": total}

    def _discreet(self, sentence: str) -> str:
        """A sentence about this site's folder is for the site; the hub learns that something is wrong there."""
        private = [str(path) for path in (self.data, self.labels, self.folder) if path]
        if any(path in sentence for path in private):
            return f"{self.name} {OWN_MATTER}"
        return sentence


def named_tuples(method: Method) -> dict[str, type]:
    """The named tuples that packets of this method may hold: those its file knows."""
    known: Mapping[str, Any] = vars(sys.modules[type(method).__module__])
    found = {name: each for name, each in known.items() if isinstance(each, type) and issubclass(each, tuple)}
    return {**found, "Snapshot": Snapshot, "Moments": Moments}


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """One packet at a time, whoever asks: two must not write the site's memory and ledger at once."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield

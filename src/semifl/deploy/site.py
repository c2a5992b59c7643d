"""A site of a real federation, whatever engine carries its letters: it follows orders within its policy.

Where the engine's process lives for many letters, the trainer is a process of its own: if it dies, the site answers
that it failed and has a new one for the next letter.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from semifl import __version__
from semifl.data.dataset import UNKNOWN
from semifl.data.partition import Holdings
from semifl.deploy import wire
from semifl.deploy.order import Accepted, accept
from semifl.deploy.pictures import SitePictures, read_site
from semifl.deploy.policy import Policy
from semifl.deploy.privacy import Ledger, protect
from semifl.deploy.wire import Letter, Precision
from semifl.errors import RunStopped, UserError
from semifl.federation.local import Visit, client_statistics, visit
from semifl.federation.memory import ClientMemory
from semifl.federation.sites import Place, grade_block
from semifl.federation.workers import Here, JobFailed, Pool, Workers
from semifl.federation.world import Method, Reply, Round
from semifl.learning.batchnorm import Moments
from semifl.learning.evaluation import blocks
from semifl.learning.weights import Snapshot, Weights, distance, zeros_like

log = logging.getLogger(__name__)

# Which signals a policy's word lets out; everything else that a client counts stays where it is.
SIGNALS = {
    "counts": ("images", "confident"),
    "training": ("lr",),
    "confidence": ("confidence", "confidence_bins"),
    "class_histogram": ("classes", "predicted"),
}
FACTS = ("loss", "fix", "mix", "agreement")  # of an Update, for `training`: means over all its examples
TASKS = ("client_update",)  # what a letter may ask a method to do
TRAINER_DIED = "its trainer process died: killed, or out of memory"


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
    _order: Any = None
    _accepted: Accepted | None = None
    _place: Place | None = None
    _pictures: SitePictures | None = None
    _trainer: Pool | None = field(default=None, repr=False)

    def answer(self, data: bytes) -> bytes:
        """The reply to a letter. Whatever goes wrong is part of the reply, told without a path or a picture."""
        try:
            letter = wire.unpack(data, self._named(wire.facts_of(data).get("order")))
            return self._follow(letter)
        except UserError as error:
            log.warning("refused: %s", error)
            return wire.pack("refused", {"reason": self._discreet(str(error))})
        except Exception as error:
            log.exception("failed")
            return wire.pack("failed", {"reason": f"it failed ({type(error).__name__}); its own log says more"})

    def close(self) -> None:
        if self._trainer:
            self._trainer.close()
            self._trainer = None

    def _named(self, order: Any) -> dict[str, type]:
        return named_tuples(self._willing(order).method)

    def _willing(self, order: Any) -> Accepted:
        """Check an order once; the pictures are read for the first one."""
        if self._accepted is None or order != self._order:
            self.close()
            accepted = accept(order, self.name, self.policy)
            self._pictures = read_site(self.data, self.labels, accepted.facts)
            self._place = self._make_place(accepted, self._pictures)
            self._order, self._accepted = order, accepted
        return self._accepted

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
            memory=ClientMemory(self.folder / accepted.run),
        )
        place.share()
        return place

    def _follow(self, letter: Letter) -> bytes:
        assert self._accepted is not None
        if letter.kind == "hello":
            return wire.pack("hello", self._hello())
        if letter.kind == "statistics":
            if not self.policy.share.statistics or self.policy.privacy.noise:
                raise UserError(
                    "this site's policy keeps its BatchNorm statistics (share.statistics, or privacy.noise)"
                )
            stats = self._run(client_statistics, letter.body, self._accepted.client)
            return self._failed(stats) or wire.pack("statistics", {}, stats)
        if letter.kind != "task" or letter.facts.get("task") not in TASKS:
            raise UserError(f"the hub's letter asks for {letter.facts.get('task', letter.kind)!r}, which no site does")
        return self._take_part(letter, self._accepted)

    def _hello(self) -> dict[str, Any]:
        assert self._pictures is not None
        told = self.policy.share.counts and not self.policy.privacy.noise
        counts = {"pictures": len(self._pictures.images)} if told else {}
        return {"semifl": __version__, "torch": torch.__version__.partition("+")[0], **counts}

    def _take_part(self, letter: Letter, accepted: Accepted) -> bytes:
        index, progress = int(letter.facts["round"]), float(letter.facts["progress"])
        t = Round(index, progress, accepted.seed.under("round", index))
        message, own = letter.body
        task = getattr(accepted.method, letter.facts["task"])
        if self._overspent() or self._would_drown(letter):
            return self._reply(Reply(accepted.client, None, "abstained", "", {}), letter)
        reply = self._run(visit, message, Visit(accepted.client, task, t, own))
        if failure := self._failed(reply):
            return failure
        if isinstance(message, Snapshot) and self.policy.share.accuracy:
            reply = reply._replace(facts=reply.facts | self._own_accuracy(message))
        if reply.update and reply.update.examples < self.policy.limits.minimum_examples:
            reply = reply._replace(update=None, outcome="abstained")
        if reply.update and self.policy.privacy.clip:
            reply = self._protected(reply, message.weights if isinstance(message, Snapshot) else None)
        return self._reply(reply, letter)

    def _reply(self, reply: Reply, letter: Letter) -> bytes:
        """What leaves this site, and nothing else."""
        update, privacy = reply.update, self.policy.privacy
        facts: dict[str, Any] = {"outcome": reply.outcome, "signals": self._signals(reply)}
        if privacy.noise:
            facts["spent"] = Ledger(self.folder / "privacy.json").spent(privacy.delta)._asdict()
        if update is None:
            return wire.pack("reply", facts)
        # With noise on the weights, exact counts beside them would give away what the noise hides.
        facts["examples"] = 1 if privacy.noise else update.examples
        if self.policy.share.training and not privacy.noise:
            facts["facts"] = {name: float(update.facts[name]) for name in FACTS if name in update.facts}
        precision: Precision = "fp16" if letter.facts.get("precision") == "fp16" else "fp32"
        return wire.pack("reply", facts, update.payload, precision)

    def _signals(self, reply: Reply) -> dict[str, Any]:
        if self.policy.privacy.noise:
            return {}
        allowed = {name for word, names in SIGNALS.items() if getattr(self.policy.share, word) for name in names}
        own = ("own_right", "own_total") if self.policy.share.accuracy else ()
        return {name: value for name, value in reply.facts.items() if name in allowed or name in own}

    def _own_accuracy(self, model: Snapshot) -> dict[str, int]:
        """How many of the site's own labels the model that was sent gets right."""
        if not self._pictures or not self._pictures.own:
            return {}
        right = total = 0
        for block in blocks(len(self._pictures.own[1])):
            score = self._run(grade_block, model, ("own", block.start, block.stop))
            if isinstance(score, JobFailed):
                return {}
            right, total = right + int(score.confusion.diagonal().sum()), total + int(score.confusion.sum())
        return {"own_right": right, "own_total": total}

    def _overspent(self) -> bool:
        privacy = self.policy.privacy
        if not privacy.largest_epsilon:
            return False
        return (
            Ledger(self.folder / "privacy.json").spent(privacy.delta, privacy.noise).epsilon > privacy.largest_epsilon
        )

    def _would_drown(self, letter: Letter) -> bool:
        """Whether the hub would turn an update away for the length of its noise: that must not cost any privacy."""
        privacy, limit = self.policy.privacy, letter.facts.get("largest_update")
        message = letter.body[0]
        if not privacy.noise or not limit or not isinstance(message, Snapshot):
            return False
        weights = sum(tensor.numel() for tensor in message.weights.values())
        length = privacy.noise * privacy.clip * math.sqrt(weights)
        if length < float(limit) * distance(message.weights, zeros_like(message.weights)):
            return False
        log.warning("abstained: noise of length %.0f would drown the model; use a smaller noise or clip", length)
        return True

    def _protected(self, reply: Reply, sent: Weights | None) -> Reply:
        assert reply.update is not None
        privacy = self.policy.privacy
        payload = protect(reply.update.payload, sent, privacy)
        if privacy.noise:
            Ledger(self.folder / "privacy.json").charge(privacy.noise)
        return reply._replace(update=reply.update._replace(payload=payload))

    def _run(self, job: Any, common: Any, item: Any) -> Any:
        """One job of the trainer process; a process that dies is a failure, not a reason to try again at once."""
        assert self._place is not None
        if self._trainer is None:
            self._trainer = Workers(self._place, 1, max_losses=0) if self.trains_apart else Here(self._place)
        try:
            return next(self._trainer.run(job, common, [item]))
        except RunStopped:
            self.close()
            return JobFailed(TRAINER_DIED, "")

    def _failed(self, result: Any) -> bytes | None:
        if not isinstance(result, JobFailed):
            return None
        log.error("%s %s", result.reason, result.trace)
        # What code says of its failure can name files and values: the hub learns the kind of error alone.
        reason = TRAINER_DIED if result.reason == TRAINER_DIED else f"its training raised {result.reason.split(':')[0]}"
        return wire.pack("failed", {"reason": reason})

    def _discreet(self, sentence: str) -> str:
        """A sentence about this site's folder is for the site; the hub learns that something is wrong there."""
        private = [str(path) for path in (self.data, self.labels, self.folder) if path]
        if any(path in sentence for path in private):
            return f"{self.name} has a problem with its own pictures or files; its own log says which"
        return sentence


def named_tuples(method: Method) -> dict[str, type]:
    """The named tuples that letters of this method may hold: those its file knows."""
    known: Mapping[str, Any] = vars(sys.modules[type(method).__module__])
    found = {name: each for name, each in known.items() if isinstance(each, type) and issubclass(each, tuple)}
    return {**found, "Snapshot": Snapshot, "Moments": Moments}

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
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from semifl.configuration.build import frozen_features, refuse_large_features
from semifl.data.dataset import UNKNOWN
from semifl.data.partition import Holdings
from semifl.deploy import leaving, wire
from semifl.deploy.leash import in_time, on_a_leash
from semifl.deploy.order import Accepted, TooMuchHere, accept, refuse_memory, refuse_other_weights, refuse_work
from semifl.deploy.pictures import OTHER_PICTURES, SitePictures, compare_with_before, count_pictures, read_site
from semifl.deploy.policy import Policy
from semifl.deploy.privacy import Ledger, Spent, protect, would_drown
from semifl.deploy.wire import Packet
from semifl.errors import RunStopped, UserError
from semifl.federation.local import Visit, client_statistics, visit, whole
from semifl.federation.memory import ClientMemory
from semifl.federation.sites import Place, grade_block
from semifl.federation.workers import Here, JobFailed, Workers
from semifl.federation.world import Method, Reply, Round, Update
from semifl.learning.batchnorm import Moments
from semifl.learning.evaluation import blocks
from semifl.learning.weights import Snapshot, Weights, zeros_like
from semifl.regular import last_touched, remove_folder, size_of

log = logging.getLogger(__name__)

FEATURES = "features"  # the folder of frozen features below that of a run
DECODED = "decoded.json"  # the file that says where decoded pictures are kept
LARGEST_ORDER = 1 << 20  # bytes
MODELS_IN_A_PACKET = 8  # FedMatch sends the most: two parts, and its helpers
OWN_MATTER = "has a problem with its own pictures or files; its own log says which"
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
    _unable: str = ""  # why the order at hand is too much for this site, where that must not be told
    _trainer: Workers | Here | None = field(default=None, repr=False)

    def answer(self, data: bytes) -> bytes:
        """The reply to a packet. Whatever goes wrong is part of the reply, told without a path or a picture."""
        try:
            accepted = self._willing(wire.facts_of(data).get("order"))
            with alone(self.folder / ".packets"):
                return self._follow(wire.unpack(data, named_tuples(accepted.method)), accepted)
        except UserError as error:
            log.warning("refused: %s", error)
            return leaving.refused(self._discreet(str(error)))
        except Exception as error:
            log.exception("failed")
            return leaving.failed(f"it failed ({type(error).__name__}); its own log says more")

    @property
    def largest_packet(self) -> int:
        """Bytes of a packet that the hub may send: before an order is accepted, an order and nothing more."""
        parameters = self._accepted.parameters if self._accepted else 0
        return LARGEST_ORDER + MODELS_IN_A_PACKET * 4 * parameters

    def close(self) -> None:
        if self._trainer:
            self._trainer.close()
            self._trainer = None

    def _willing(self, order: Any) -> Accepted:
        """Check an order once; the pictures are read for the first one."""
        if self._accepted is None or order != self._order:
            self.close()
            accepted = accept(order, self.name, self.policy)
            unable = ""
            try:
                self._prepare(accepted)
            except TooMuchHere as error:
                if not self.policy.privacy.noise:
                    raise
                # To refuse for how many pictures there are would tell of them: noise alone will go out.
                log.warning("%s: as this site adds noise, it does not say so, and sends noise alone", error)
                unable = str(error)
            self._order, self._accepted, self._unable = order, accepted, unable
            if self.policy.privacy.noise and (bare := self._ledger.bare()):
                log.warning("%d updates left this site without noise before: ε says nothing of what those told", bare)
        return self._accepted

    def _prepare(self, accepted: Accepted) -> None:
        """Read the pictures, if the policy has room for what the order wants with them."""
        # Before any picture is decoded: their number is known.
        with self._own_matters():
            count = count_pictures(self.data)
        refuse_memory(accepted.parameters, accepted.facts, count, self.policy)
        self._make_room(accepted)
        with self._own_matters():
            decoding = in_time(self.policy.limits)
            self._pictures = read_site(self.data, self.labels, accepted.facts, self.folder / DECODED, decoding)
        if self._pictures.skipped:
            log.warning("%d files below %s are no readable pictures", self._pictures.skipped, self.data)
        refuse_work(accepted.method, len(self._pictures.images), self.policy)
        self._place = self._make_place(accepted, self._pictures)
        if note := compare_with_before(self._pictures.images, self._run_folder(accepted)):
            log.warning("%s: %s", OTHER_PICTURES, note)

    @contextmanager
    def _own_matters(self) -> Iterator[None]:
        """What is wrong with this site's pictures is for the site: such sentences have numbers and paths in them."""
        try:
            yield
        except UserError as error:
            log.warning("%s", error)
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
            memory=ClientMemory(self._run_folder(accepted)),
            precision=accepted.precision,
        )
        if getattr(accepted.spec, "views", 0):
            place = self._with_features(place, accepted)
        place.share()
        return place

    def _with_features(self, place: Place, accepted: Accepted) -> Place:
        """Frozen features stay with the run, as long as there is no other and the policy has room for them."""
        for other in (self.folder / "runs").glob(f"*/{FEATURES}"):
            if other.parent != self._run_folder(accepted):
                remove_folder(other)
        folder = self._run_folder(accepted) / FEATURES
        kept = frozen_features(folder, place.facts, accepted.spec, accepted.method, accepted.seed, accepted.precision)
        tested = sum(len(labels) for _, labels in place.graded.values())
        largest, (own, tested) = self.policy.limits.largest_features, self.policy.rounded([len(place.images), tested])
        try:
            refuse_large_features(kept, place, own, tested, largest, "limits.largest_features")
        except UserError as error:
            log.warning("%s", error)
            raise TooMuchHere(
                f"the order's frozen features take more than the {largest:g} GB of disk that this site's policy allows "
                "(limits.largest_features): lower model.views"
            ) from error
        return replace(place, facts=kept.facts_of_tickets(), features=kept)

    def _make_room(self, accepted: Accepted) -> None:
        """A hub may begin any number of runs: what the longest untouched ones left goes, where it is too much."""
        others = [path for path in (self.folder / "runs").glob("*") if path != self._run_folder(accepted)]
        left = sum(map(size_of, others)) - self.policy.limits.largest_memory * 1e9
        for run in sorted(others, key=last_touched):
            if left <= 0:
                return
            log.warning("forgot run %s, for limits.largest_memory", run.name)
            left -= size_of(run)
            remove_folder(run)

    def forget_features(self) -> None:
        """When a run is over: they are computed again if it goes on."""
        for folder in (self.folder / "runs").glob(f"*/{FEATURES}"):
            remove_folder(folder)

    def _run_folder(self, accepted: Accepted) -> Path:
        """What belongs to a run lies apart from what belongs to the site, whatever the run is called."""
        return self.folder / "runs" / accepted.run

    def _follow(self, packet: Packet, accepted: Accepted) -> bytes:
        if packet.kind == "hello":
            return leaving.hello(self.policy, len(self._pictures.images) if self._pictures else 0)
        if packet.kind == "goodbye":
            self.forget_features()
            return leaving.goodbye()
        refuse_other_weights(packet.body, accepted.shapes)
        if packet.kind == "statistics":
            if not self.policy.shares_statistics:
                raise UserError(
                    "this site's policy keeps its BatchNorm statistics (share.statistics, or privacy.noise)"
                )
            assert self._pictures is not None  # whoever is unable to take part adds noise, and shares none
            stats = self._run(client_statistics, packet.body, accepted.client)
            return self._failed(stats) or leaving.statistics(stats, self.policy, len(self._pictures.images))
        if packet.kind != "task":
            raise UserError(f"the hub's packet asks for {packet.kind[:50]!r}, which no site does")
        return self._take_part(packet, accepted)

    def _take_part(self, packet: Packet, accepted: Accepted) -> bytes:
        index, progress = int(packet.facts["round"]), float(packet.facts["progress"])
        t = Round(index, progress, accepted.seed.under("round", index))
        message, own = packet.body
        sent = accepted.method.sent_weights(whole(message, own))
        if not self._can_afford(sent, packet.facts.get("largest_update")):
            reply = Reply(accepted.client, None, "abstained", "", {})
        elif self._unable:
            reply = self._within_policy(Reply(accepted.client, None, "abstained", "", {}), sent)
        else:
            result = self._run(visit, message, Visit(accepted.client, accepted.method, t, own))
            if failure := self._failed(result):
                return failure
            model = accepted.method.sent_model(whole(message, own))
            if model is not None and self.policy.share.accuracy:
                result = result._replace(facts=result.facts | self._own_accuracy(model))
            reply = self._within_policy(result, sent)
        precision: wire.Precision = "fp16" if packet.facts.get("precision") == "fp16" else "fp32"
        return leaving.reply(reply, self.policy, self._spent(), precision)

    def _within_policy(self, reply: Reply, sent: Weights) -> Reply:
        """Abstain with too few examples; clip, and add noise."""
        if reply.update and _examples(reply) < self.policy.limits.minimum_examples:
            reply = reply._replace(update=None, outcome="abstained")
        privacy = self.policy.privacy
        if reply.update is None and privacy.noise:
            # To abstain for what the pictures are would tell of them: noise alone goes out, and costs the same.
            reply = reply._replace(update=Update(zeros_like(sent), 1, {}, {}), outcome="trained")
        if reply.update is None:
            return reply
        change = protect(reply.update.change, privacy) if privacy.clip else reply.update.change
        self._ledger.charge(privacy.noise)
        return reply._replace(update=reply.update._replace(change=change))

    @property
    def _ledger(self) -> Ledger:
        return Ledger(self.folder / "privacy.json")

    def _spent(self) -> Spent | None:
        privacy = self.policy.privacy
        return self._ledger.spent(privacy.delta) if privacy.noise else None

    def _can_afford(self, sent: Weights, largest_update: Any) -> bool:
        """Whether one more update is within the budget, and would not be turned away for the length of its noise."""
        privacy = self.policy.privacy
        if privacy.largest_epsilon:
            after = self._ledger.spent(privacy.delta, more=privacy.noise)
            if after.epsilon > privacy.largest_epsilon:
                log.warning("abstained: with this update ε would be %.2f", after.epsilon)
                return False
        if privacy.noise and would_drown(sent, privacy, largest_update):
            log.warning("abstained: the noise would drown the model; the policy needs a smaller noise or clip")
            return False
        return True

    def _own_accuracy(self, model: Snapshot) -> dict[str, int]:
        """How many of the site's own labels the model that was sent gets right, if there are enough of them."""
        assert self._pictures is not None
        if not self._pictures.own or len(self._pictures.own[1]) < self.policy.limits.minimum_examples:
            return {}
        right = total = 0
        for block in blocks(len(self._pictures.own[1])):
            score = self._run(grade_block, model, ("own", block.start, block.stop))
            if isinstance(score, JobFailed):
                return {}
            right, total = right + int(score.confusion.diagonal().sum()), total + int(score.confusion.sum())
        return {"own_right": right, "own_total": total}

    def _run(self, job: Any, common: Any, item: Any) -> Any:
        """One job of the trainer process; a process that dies is a failure, not a reason to try again at once."""
        assert self._place is not None
        if self._trainer is None:
            self._trainer = Workers(self._place, 1, max_losses=0) if self.trains_apart else Here(self._place)
        with on_a_leash(self._trainer, self.policy.limits) as leash:
            try:
                return next(self._trainer.run(job, common, [item]))
            except RunStopped:
                self.close()
        return JobFailed(leash.broken or TRAINER_DIED, "")

    def _failed(self, result: Any) -> bytes | None:
        if not isinstance(result, JobFailed):
            return None
        log.error("%s %s", result.reason, result.trace)
        # What code says of its failure can name files and values: the hub learns the kind of error alone.
        return leaving.failed(f"its training raised {result.kind}" if result.kind else result.reason)

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


def _examples(reply: Reply) -> int:
    """On how many pictures an update rests: those that the model was sure of, where it says."""
    assert reply.update is not None
    return min(reply.update.examples, int(reply.facts.get("confident", reply.update.examples)))


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """One packet at a time, whoever asks: two must not write the site's memory and ledger at once."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield

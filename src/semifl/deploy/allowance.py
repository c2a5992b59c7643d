"""How much of an update may leave a site, by its policy, and what that costs of its privacy."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from semifl.deploy.policy import Policy
from semifl.deploy.privacy import Ledger, Spent, protect, would_drown
from semifl.federation.world import Reply, Update
from semifl.learning.weights import Weights, zeros_like

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Allowance:
    policy: Policy
    ledger: Ledger

    def warn_of_bare_updates(self) -> None:
        if self.policy.privacy.noise and (bare := self.ledger.bare()):
            log.warning("%d updates left this site without noise before: ε says nothing of what those told", bare)

    def affords(self, sent: Weights, largest_update: Any) -> bool:
        """Whether one more update is within the budget, and would not be turned away for the length of its noise."""
        privacy = self.policy.privacy
        if privacy.largest_epsilon:
            after = self.ledger.spent(privacy.delta, more=privacy.noise)
            if after.epsilon > privacy.largest_epsilon:
                log.warning("abstained: with this update ε would be %.2f", after.epsilon)
                return False
        if privacy.noise and would_drown(sent, privacy, largest_update):
            log.warning("abstained: the noise would drown the model; the policy needs a smaller noise or clip")
            return False
        return True

    def release(self, reply: Reply, sent: Weights) -> Reply:
        """Abstain with too few examples; clip, add noise, and write down that it leaves."""
        if reply.update and _examples(reply) < self.policy.limits.minimum_examples:
            reply = reply._replace(update=None, outcome="abstained")
        privacy = self.policy.privacy
        if reply.update is None and privacy.noise:
            # To abstain for what the pictures are would tell of them: noise alone goes out, and costs the same.
            reply = reply._replace(update=Update(zeros_like(sent), 1, {}, {}), outcome="trained")
        if reply.update is None:
            return reply
        change = protect(reply.update.change, privacy) if privacy.clip else reply.update.change
        self.ledger.charge(privacy.noise)
        return reply._replace(update=reply.update._replace(change=change))

    def spent(self) -> Spent | None:
        privacy = self.policy.privacy
        return self.ledger.spent(privacy.delta) if privacy.noise else None


def _examples(reply: Reply) -> int:
    """On how many pictures an update rests: those that the model was sure of, where it says."""
    assert reply.update is not None
    return min(reply.update.examples, int(reply.facts.get("confident", reply.update.examples)))

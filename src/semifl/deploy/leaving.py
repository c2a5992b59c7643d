"""Everything that leaves a site is written here, and nowhere else: one function for each kind of answer.

Weights, the number of pictures they rest on, and of what a client counts only the words that the site's policy shares.
"""

from __future__ import annotations

from typing import Any

import torch

from semifl import __version__
from semifl.deploy import wire
from semifl.deploy.policy import Policy
from semifl.deploy.privacy import Spent
from semifl.deploy.wire import Precision
from semifl.federation.world import Reply
from semifl.learning.batchnorm import BatchNormStats

# Which signals a policy's word lets out; everything else that a client counts stays where it is.
SIGNALS = {
    "counts": ("images", "confident"),
    "training": ("lr",),
    "confidence": ("confidence", "confidence_bins"),
    "class_histogram": ("classes", "predicted"),
    "accuracy": ("own_right", "own_total"),
}
FACTS = ("loss", "fix", "mix", "agreement")  # of an Update, for `training`: means over all its examples


def hello(policy: Policy, pictures: int) -> bytes:
    facts: dict[str, Any] = {"semifl": __version__, "torch": torch.__version__.partition("+")[0]}
    if policy.share.counts and not policy.privacy.noise:
        facts["pictures"] = pictures
    return wire.pack("hello", facts)


def reply(reply: Reply, policy: Policy, spent: Spent | None, precision: Precision) -> bytes:
    """What became of a client's turn. With noise, exact numbers beside the weights would give away what it hides."""
    update, noisy = reply.update, bool(policy.privacy.noise)
    facts: dict[str, Any] = {"outcome": reply.outcome, "signals": {} if noisy else _signals(reply, policy)}
    if spent:
        facts["spent"] = spent._asdict()
    if update is None:
        return wire.pack("reply", facts)
    facts["examples"] = 1 if noisy else update.examples
    if policy.share.training and not noisy:
        facts["facts"] = {name: float(update.facts[name]) for name in FACTS if name in update.facts}
    return wire.pack("reply", facts, update.payload, precision)


def statistics(stats: BatchNormStats) -> bytes:
    return wire.pack("statistics", {}, stats)


def refused(sentence: str) -> bytes:
    return wire.pack("refused", {"reason": sentence})


def failed(reason: str) -> bytes:
    return wire.pack("failed", {"reason": reason})


def _signals(reply: Reply, policy: Policy) -> dict[str, Any]:
    """The shared ones, if they are sums over enough pictures: a figure about very few would be one about each."""
    if reply.facts.get("images", 0) < policy.limits.minimum_examples:
        return {}
    allowed = {name for word, names in SIGNALS.items() if getattr(policy.share, word) for name in names}
    return {name: value for name, value in reply.facts.items() if name in allowed}

"""Everything that leaves a site is written here, and nowhere else: one function for each kind of answer.

The change of the weights, the number of pictures it rests on, and of what a client counts only the words that the
site's policy shares, in steps so coarse that no figure is about a single picture.
"""

from __future__ import annotations

from typing import Any

import torch

from semifl import __version__
from semifl.deploy import wire
from semifl.deploy.policy import Policy
from semifl.deploy.privacy import Spent
from semifl.deploy.wire import Precision
from semifl.federation.signals import SIGNALS
from semifl.federation.world import Reply
from semifl.learning.batchnorm import BatchNormStats, Moments


def hello(policy: Policy, pictures: int) -> bytes:
    facts: dict[str, Any] = {"semifl": __version__, "torch": torch.__version__.partition("+")[0]}
    if policy.share.counts and not policy.privacy.noise:
        facts["pictures"] = policy.rounded(pictures)
    return wire.pack("hello", facts)


def reply(reply: Reply, policy: Policy, spent: Spent | None, precision: Precision) -> bytes:
    """What became of a client's turn. With noise, exact numbers beside the weights would give away what it hides."""
    update, noisy = reply.update, bool(policy.privacy.noise)
    facts: dict[str, Any] = {"outcome": reply.outcome, "signals": {} if noisy else _signals(reply, policy)}
    if spent:
        facts["spent"] = spent._asdict()
    if update is None:
        return wire.pack("reply", facts)
    facts["examples"] = 1 if noisy else max(1, policy.rounded(update.examples))
    if policy.share.training and not noisy:
        facts["terms"] = {name: float(f"{float(value):.3g}") for name, value in update.terms.items()}
    return wire.pack("reply", facts, update.change, precision)


def statistics(stats: BatchNormStats, policy: Policy, pictures: int) -> bytes:
    """Of enough pictures, and as if there were a round number of them: a layer's count of values tells how many."""
    told = policy.rounded(pictures)
    if pictures < policy.limits.minimum_examples or not told:
        return wire.pack("statistics", {}, {})
    return wire.pack("statistics", {}, {name: _as_of(each, pictures, told) for name, each in stats.items()})


def _as_of(moments: Moments, pictures: int, told: int) -> Moments:
    return moments._replace(number=max(1, round(moments.number * told / pictures)))


def goodbye() -> bytes:
    return wire.pack("goodbye", {})


def refused(sentence: str) -> bytes:
    return wire.pack("refused", {"reason": sentence})


def failed(reason: str) -> bytes:
    return wire.pack("failed", {"reason": reason})


def _signals(reply: Reply, policy: Policy) -> dict[str, Any]:
    """The shared ones, if they are sums over enough pictures: a figure about very few would be one about each."""
    if reply.facts.get("images", 0) < policy.limits.minimum_examples:
        return {}
    told = {}
    for signal in SIGNALS:
        if signal.name in reply.facts and signal.share and getattr(policy.share, signal.share):
            value = reply.facts[signal.name]
            told[signal.name] = policy.rounded(value) if signal.is_of_pictures else value
    return told

"""Clipping and Gaussian noise on a site's whole update, and the ledger of what this has given away.

The noise comes from the operating system's own source at the site: nobody else can draw it again and subtract it.
Protected is the site as a whole: with or without its pictures, what the hub sees is nearly as likely (ε, δ).
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from semifl.deploy.policy import Privacy
from semifl.durable import replace_text
from semifl.errors import UserError
from semifl.learning.weights import Weights, norm


class Spent(NamedTuple):
    epsilon: float
    delta: float


def protect(change: Weights, privacy: Privacy) -> Weights:
    """The change clipped to the norm `clip`, with noise of noise · clip added."""
    for name, tensor in change.items():
        if not tensor.is_floating_point():
            raise UserError(f"{name!r} of the update is not made of real numbers, so no noise can protect it")
    length = norm(change)
    # A change that is not finite has no direction that could be kept: none of it leaves.
    share = 0.0 if not math.isfinite(length) else min(1.0, privacy.clip / length) if length else 1.0
    protected = {}
    for name, tensor in change.items():
        shared = share * tensor.double() if share else torch.zeros_like(tensor, dtype=torch.float64)
        if privacy.noise:
            shared = shared + privacy.noise * privacy.clip * secret_normal(tensor.shape)
        protected[name] = shared.to(tensor.dtype)
    return protected


def would_drown(sent: Weights, privacy: Privacy, largest_update: Any) -> bool:
    """Whether the hub would turn an update away for the length of its noise: that must not cost any privacy."""
    if not isinstance(largest_update, (int, float)) or not largest_update:
        return False
    length = privacy.noise * privacy.clip * math.sqrt(sum(tensor.numel() for tensor in sent.values()))
    return length >= largest_update * norm(sent)


def secret_normal(shape: torch.Size) -> Tensor:
    """Standard normal numbers out of the operating system's randomness, by Box and Muller's formula."""
    pairs = -(-shape.numel() // 2)
    words = np.frombuffer(os.urandom(16 * pairs), dtype=np.uint64) >> np.uint64(11)
    uniform = (words.astype(np.float64) + 0.5) * 2.0**-53  # in (0, 1), so that its logarithm is finite
    radius, angle = np.sqrt(-2 * np.log(uniform[:pairs])), 2 * np.pi * uniform[pairs:]
    normal = np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[: shape.numel()]
    return torch.from_numpy(normal).reshape(shape)


class Ledger:
    """How often an update left with how much noise, in a file; written before the update leaves, never after.

    Those without noise are in it too: no ε holds for them, and whoever adds noise later must know of them.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def charge(self, noise: float) -> None:
        releases = self._releases()
        releases[noise] = releases.get(noise, 0) + 1
        entries = [{"noise": each, "updates": count} for each, count in releases.items()]
        replace_text(self._path, json.dumps(entries, indent=1) + "\n")

    def spent(self, delta: float, more: float | None = None) -> Spent:
        """The ε for this δ of all that left with noise so far, and with `more` of one more update with that much."""
        releases = {noise: count for noise, count in self._releases().items() if noise}
        if more is not None:
            releases[more] = releases.get(more, 0) + 1
        return Spent(epsilon_of(releases, delta), delta)

    def bare(self) -> int:
        """How many updates left without noise."""
        return self._releases().get(0.0, 0)

    def _releases(self) -> dict[float, int]:
        if not self._path.exists():
            return {}
        try:
            entries = json.loads(self._path.read_text(encoding="utf-8"))
            return {float(entry["noise"]): int(entry["updates"]) for entry in entries}
        except (OSError, ValueError, KeyError, TypeError) as error:
            # To start afresh would mean to forget what was given away.
            raise UserError(
                f"the privacy ledger {self._path} is damaged: restore it, or accept the loss by removing it"
            ) from error


def epsilon_of(releases: dict[float, int], delta: float) -> float:
    """The exact ε of all of it, rounded up.

    Gaussian mechanisms together are one, of μ² = Σ k/σ_k², and that one is (ε, δ)-private for
    δ = Φ(μ/2 − ε/μ) − e^ε Φ(−μ/2 − ε/μ) (Balle and Wang 2018), which falls with ε.
    """
    from scipy.special import log_ndtr  # in logarithms: e^ε and Φ are beyond floating point where ε is large

    mu = math.sqrt(sum(count / noise**2 for noise, count in releases.items()))

    def is_private(epsilon: float) -> bool:
        first, second = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
        rounding = 1e-14 * (1 + epsilon)  # taken for the worse: ε is never understated
        return bool(first + math.log(-math.expm1(min(second - first, 0.0) - rounding)) <= math.log(delta))

    if not mu or is_private(0.0):
        return 0.0
    low, high = 0.0, mu**2 / 2 + mu * math.sqrt(-2 * math.log(delta))  # enough, by the first term alone
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if is_private(middle) else (middle, high)
    return high

"""Clients that do harm: SemiFL in which a fixed share of the clients sends something else than it should.

Named in a configuration as `poison:PoisonedSemiFL`; `poison = "none"` is SemiFL itself, bit for bit.
"""

import math
import os
import signal
from dataclasses import dataclass
from typing import Literal

import torch

from semifl.federation.world import Client, Round, Update
from semifl.learning.targets import PseudoLabels
from semifl.learning.weights import Snapshot, Weights, scale, zeros_like
from semifl.methods.semifl import SemiFL
from semifl.randomness import Seed

SIGN_STRENGTH = 5  # how much further a flipped update goes than the honest one

GOLDEN = (math.sqrt(5) - 1) / 2


class Mislabeling:
    """A client all of whose pseudo-labels are one class too high; everything else is the honest client's."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> object:
        return getattr(self._client, name)

    def pseudo_labels(self, model: Snapshot, images: torch.Tensor) -> PseudoLabels:
        pseudo = self._client.pseudo_labels(model, images)
        return pseudo._replace(labels=(pseudo.labels + 1) % self._client.facts.classes)


@dataclass(frozen=True)
class PoisonedSemiFL(SemiFL):
    poison: Literal["random", "sign", "labels", "nan", "none"] = "none"
    poisoned: float = 0.3  # share of the clients, the same ones in every round

    def client_update(self, client: Client, model: Snapshot, t: Round) -> Update | None:
        if self.poison == "none" or not self.is_poisoned(client.seed):
            return super().client_update(client, model, t)
        if self.poison == "labels":
            return super().client_update(Mislabeling(client), model, t)
        honest = super().client_update(client, model, t)
        # An abstaining client would do no harm, so a poisoned one never abstains.
        honest = honest or Update(zeros_like(model.weights), len(client.images), {}, {})
        return honest._replace(change=self.spoil(honest.change, model.weights, client.seed))

    def is_poisoned(self, seed: Seed) -> bool:
        """Drawn from the run's seed and the client's number, which ends the address of its streams.

        Multiples of the golden ratio spread evenly over [0, 1), so the share holds among few clients too.
        """
        shift = float(torch.rand((), generator=Seed(seed.value).at("poison")))
        return (shift + int(seed.path[-1]) * GOLDEN) % 1 < self.poisoned

    def spoil(self, change: Weights, sent: Weights, seed: Seed) -> Weights:
        if self.poison == "nan":
            return {name: torch.full_like(tensor, math.nan) for name, tensor in change.items()}
        if self.poison == "sign":
            return scale(change, -SIGN_STRENGTH)
        rng = seed.at("poison")
        return {name: torch.randn(tensor.shape, generator=rng) - tensor for name, tensor in sent.items()}


@dataclass(frozen=True)
class Deadly(SemiFL):
    """A client that kills its process, as the system does when memory runs out."""

    def client_update(self, client: Client, model: Snapshot, t: Round) -> Update | None:
        os.kill(os.getpid(), signal.SIGKILL)
        return None

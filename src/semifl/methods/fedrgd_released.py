"""FedRGD as SemiFL's tables ran it: FedAvg + FixMatch in which the server weighs more than one client.

The clients are dealt into two groups, each is averaged with the server's one model, and the groups with each other.
Everybody starts again from the result, so with equal groups the dealing changes nothing: it is a fixed weight of the
server. `docs/methods/fedrgd_released.md` lists what differs from its authors' scheme, which is `fedrgd`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from semifl.federation.world import Cohort
from semifl.fields import NotNegative
from semifl.learning.aggregation import with_server
from semifl.learning.weights import Weights
from semifl.methods.semifl_ablated import SemiFLAblated


@dataclass(frozen=True)
class FedRGDReleased(SemiFLAblated):
    step_from: Literal["sent", "server"] = "server"  # where the global step starts: the server's newly trained model
    mix_weight: NotNegative = 0.0  # λ, weight of the Mixup loss; 0 trains without it

    def __post_init__(self) -> None:
        if self.training == "alternate":
            raise ValueError('training must be "parallel" in fedrgd_released: its server trains beside the clients')
        super().__post_init__()

    def joined(self, W_s: Weights, W_u: Weights | None, S_t: Cohort) -> Weights:
        """In each of two groups the server counts as much as a client; both groups' means have the same weight."""
        small, large = len(S_t) // 2, len(S_t) - len(S_t) // 2
        return with_server(W_s, W_u, (1 / (small + 1) + 1 / (large + 1)) / 2)

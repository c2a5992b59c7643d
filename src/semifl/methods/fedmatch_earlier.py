"""FedMatch as SemiFL's released program ran it until August 2022: server and clients train different channels.

Server and clients train in parallel from the same weights. The server moves the first half of each tensor's channels,
the clients the second half; the next model has the server's first half and the clients' mean second half.
`docs/methods/fedmatch.md` says what its authors' method is, which is `fedmatch`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch

from semifl.federation.world import Cohort
from semifl.fields import NotNegative
from semifl.learning.network import Network
from semifl.learning.training import BeforeStep
from semifl.learning.weights import Weights
from semifl.methods.semifl_ablated import SemiFLAblated


@dataclass(frozen=True)
class FedMatchEarlier(SemiFLAblated):
    step_from: Literal["sent", "server"] = "server"  # where the global step starts: the server's newly trained model
    mix_weight: NotNegative = 0.0  # λ, weight of the Mixup loss; 0 trains without it

    def __post_init__(self) -> None:
        if self.training == "alternate":
            raise ValueError('training must be "parallel" in fedmatch_earlier: its server trains beside the clients')
        super().__post_init__()

    def joined(self, W_s: Weights, W_u: Weights | None, S_t: Cohort) -> Weights:
        """Return the first half of the server's channels with the second half of the clients' mean."""
        if W_u is None:
            return W_s
        return {name: torch.cat([W[: half(W)], W_u[name][half(W) :]]) for name, W in W_s.items()}

    @property
    def before_server_step(self) -> BeforeStep:
        return partial(zero_gradient, part="second half")

    @property
    def before_client_step(self) -> BeforeStep:
        return partial(zero_gradient, part="first half")


def zero_gradient(network: Network, part: Literal["first half", "second half"]) -> None:
    """Zero the gradient of half of each tensor's channels; weight decay and momentum still act on them."""
    for W in network.module.parameters():
        if W.grad is not None:
            (W.grad[: half(W)] if part == "first half" else W.grad[half(W) :]).zero_()


def half(tensor: torch.Tensor) -> int:
    return len(tensor) // 2

"""From the average of the clients' models to the next global model: SGD with momentum, or FedOpt's adaptive rules.

FedOpt (Reddi et al. 2021): the server takes Δ = mean − W for a pseudo-gradient and keeps its first and second moments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from semifl.learning.weights import Weights, momentum_step, zeros_like

Rule = Literal["momentum", "adam", "yogi", "adagrad"]


class Past(NamedTuple):
    """What the server remembers of earlier steps; `momentum` has no second one."""

    first: Weights
    second: Weights


@dataclass(frozen=True)
class ServerStep:
    rule: Rule = "momentum"
    lr: float = 1.0
    momentum: float = 0.5  # β₁
    beta2: float = 0.99
    epsilon: float = 1e-3  # τ of the FedOpt paper, the degree of adaptivity

    def start(self, weights: Weights) -> Past:
        second = (
            {} if self.rule == "momentum" else {name: t + self.epsilon**2 for name, t in zeros_like(weights).items()}
        )
        return Past(zeros_like(weights), second)

    def take(self, start: Weights, mean: Weights | None, past: Past) -> tuple[Weights, Past]:
        """One step from `start` towards `mean`; without a mean nothing moves and nothing is forgotten."""
        if mean is None:
            return start, past
        if self.rule == "momentum":
            target = mean if self.lr == 1 else {name: torch.lerp(start[name], mean[name], self.lr) for name in start}
            weights, velocity = momentum_step(start, target, past.first, self.momentum)
            return weights, Past(velocity, {})
        first, second, weights = {}, {}, {}
        for name, W in start.items():
            Δ = mean[name] - W
            first[name] = self.momentum * past.first[name] + (1 - self.momentum) * Δ
            second[name] = self._second(past.second[name], Δ * Δ)
            weights[name] = W + self.lr * first[name] / (second[name].sqrt() + self.epsilon)
        return weights, Past(first, second)

    def _second(self, v: Tensor, squared: Tensor) -> Tensor:
        if self.rule == "adagrad":
            return v + squared
        if self.rule == "yogi":
            return v - (1 - self.beta2) * squared * torch.sign(v - squared)
        return self.beta2 * v + (1 - self.beta2) * squared

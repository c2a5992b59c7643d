"""From the average of the clients' models to the next global model: SGD with momentum, or FedOpt's adaptive rules.

FedOpt (Reddi et al. 2021): the server takes Δ = mean − W for a pseudo-gradient and keeps its first and second moments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from semifl.fields import Checked, Choice, Positive, Share
from semifl.learning.weights import Weights, momentum_step, zeros_like


class Past(NamedTuple):
    """What the server remembers of earlier steps; `Momentum` has no second moment."""

    first: Weights
    second: Weights


@dataclass(frozen=True)
class Momentum(Checked):
    """SGD with momentum; with a momentum of 0 and a rate of 1 the average is the next model."""

    lr: Positive = 1.0  # of the global step
    momentum: Share = 0.5  # over rounds

    def start(self, weights: Weights) -> Past:
        return Past(zeros_like(weights), {})

    def step(self, start: Weights, mean: Weights | None, past: Past) -> tuple[Weights, Past]:
        """One step from `start` towards `mean`; without a mean nothing moves and nothing is forgotten."""
        if mean is None:
            return start, past
        target = mean if self.lr == 1 else {name: torch.lerp(start[name], mean[name], self.lr) for name in start}
        weights, velocity = momentum_step(start, target, past.first, self.momentum)
        return weights, Past(velocity, {})


@dataclass(frozen=True)
class _Adaptive(Checked):
    """What FedOpt's three share: each entry's step is divided by the root of its second moment."""

    lr: Positive = 0.01  # about how far an entry moves in a round, whatever the size of Δ
    beta1: Share = 0.9  # of the first moment
    epsilon: Positive = 1e-3  # τ of the FedOpt paper: the larger, the less adaptive

    def start(self, weights: Weights) -> Past:
        zeros = zeros_like(weights)
        return Past(zeros, {name: tensor + self.epsilon**2 for name, tensor in zeros.items()})

    def step(self, start: Weights, mean: Weights | None, past: Past) -> tuple[Weights, Past]:
        """As `Momentum.step`."""
        if mean is None:
            return start, past
        first, second, weights = {}, {}, {}
        for name, W in start.items():
            Δ = mean[name] - W
            first[name] = self.beta1 * past.first[name] + (1 - self.beta1) * Δ
            second[name] = self.second_moment(past.second[name], Δ * Δ)
            weights[name] = W + self.lr * first[name] / (second[name].sqrt() + self.epsilon)
        return weights, Past(first, second)

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        raise NotImplementedError


@dataclass(frozen=True)
class Adam(_Adaptive):
    """FedAdam: the second moment is a running mean."""

    beta2: Share = 0.99  # of the second moment

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        return self.beta2 * v + (1 - self.beta2) * squared


@dataclass(frozen=True)
class Yogi(Adam):
    """FedYogi: the second moment follows large changes more slowly."""

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        return v - (1 - self.beta2) * squared * torch.sign(v - squared)


@dataclass(frozen=True)
class Adagrad(_Adaptive):
    """FedAdagrad: the second moment is a sum, so steps only become shorter."""

    beta1: Share = 0.0  # of the first moment

    def second_moment(self, v: Tensor, squared: Tensor) -> Tensor:
        return v + squared


SERVER_OPTIMIZERS = {"momentum": Momentum, "adam": Adam, "yogi": Yogi, "adagrad": Adagrad}
ServerOptimizer = Annotated[Momentum | Adam | Yogi | Adagrad, Choice(SERVER_OPTIMIZERS)]

"""The one training loop of the project: start weights, batches, a loss, an optimiser; weights and facts out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from semifl.learning.network import Network, Stretch
from semifl.learning.prefetching import prefetched
from semifl.learning.weights import Weights
from semifl.randomness import Seed

Memory = dict[str, Tensor]  # what training keeps between rounds, by name
# Named terms, of which "loss" is minimised; a batch that has none has nothing to teach, and no step is taken.
Loss = Callable[[Network, Any], dict[str, Tensor]]
BeforeStep = Callable[[Network], None]  # called when the gradient is known and clipped


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent as the paper uses it; `clip_norm` 0 means no clipping.

    `proximal` is FedProx's μ: with it a step also descends μ/2 · ‖W − start‖². `backbone_lr` is times `lr`, for all
    but the last layer.
    """

    KEPT: ClassVar[dict[str, str]] = {"momentum": "momentum_buffer"}  # what may be remembered, and torch's name for it

    lr: float
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    clip_norm: float = 0.0
    proximal: float = 0.0
    backbone_lr: float = 1.0

    def optimizer(self, stretches: list[Stretch]) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            self.rates(stretches),
            lr=self.lr,
            momentum=self.momentum,
            nesterov=self.nesterov and self.momentum > 0,
            weight_decay=self.weight_decay,
            fused=True,
        )

    def stretches(self, network: Network) -> list[Stretch]:
        """What steps at one rate each: all as one, unless the last layer has a rate of its own."""
        return network.stretches() if self.backbone_lr != 1 else [Stretch(network.vector, slice(None), is_head=True)]

    def rates(self, stretches: list[Stretch]) -> list[dict[str, Any]]:
        return [
            {"params": [each.vector], "lr": self.lr if each.is_head else self.lr * self.backbone_lr}
            for each in stretches
        ]

    def recall(self, optimizer: torch.optim.Optimizer, stretches: list[Stretch], memory: Memory | None) -> None:
        """Go on with what was remembered of all weights."""
        if not memory or "momentum" not in memory:
            return
        for stretch in stretches:
            state = optimizer.state[stretch.vector]
            for name, theirs in self.KEPT.items():
                kept = memory[name]
                state[theirs] = (kept[stretch.place] if kept.dim() else kept).to(stretch.vector.device, copy=True)

    def remembered(self, optimizer: torch.optim.Optimizer, stretches: list[Stretch]) -> Memory:
        states = [optimizer.state[stretch.vector] for stretch in stretches]
        memory: Memory = {}
        for name, theirs in self.KEPT.items():
            parts = [state[theirs].cpu() for state in states if state.get(theirs) is not None]
            if parts:
                memory[name] = torch.cat(parts) if len(parts) > 1 and parts[0].dim() else parts[0]
        return memory


@dataclass(frozen=True)
class AdamW(SGD):
    """Adam with decoupled decay (Loshchilov & Hutter 2019), which transformers need; `momentum` is its β₁."""

    KEPT: ClassVar[dict[str, str]] = {"momentum": "exp_avg", "squares": "exp_avg_sq", "steps": "step"}
    BETA2: ClassVar[float] = 0.999

    def optimizer(self, stretches: list[Stretch]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(
            self.rates(stretches),
            lr=self.lr,
            betas=(self.momentum, self.BETA2),
            weight_decay=self.weight_decay,
            fused=True,
        )


@dataclass(frozen=True)
class Fit:
    """One piece of training. `seed` is for what the model and the loss draw (dropout, Mixup).

    `before_step` is called with the network when the gradient is known and clipped, `after_step` when the step is
    taken; `width` below 1 trains a sub-network, for models that can be cut.
    """

    start: Weights
    batches: Iterable[Any]
    loss: Loss
    sgd: SGD
    seed: Seed
    memory: Memory | None = None
    before_step: BeforeStep | None = None
    after_step: Callable[[Network], None] | None = None
    width: float = 1.0


class Fitted(NamedTuple):
    """What training gives: weights, what to remember, and the mean of each loss term over the steps."""

    weights: Weights
    memory: Memory
    terms: dict[str, float]


def fit(network: Network, job: Fit) -> Fitted:
    """Train `network` from `job.start` over `job.batches`."""
    network.load(job.start)
    network.module.train()
    stretches = job.sgd.stretches(network)
    optimizer = job.sgd.optimizer(stretches)
    job.sgd.recall(optimizer, stretches, job.memory)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.seed.number())
        totals, steps = train(network, job, optimizer)
    memory = job.sgd.remembered(optimizer, stretches)
    return Fitted(network.weights(), memory, {name: float(total) / steps for name, total in totals.items()})


def train(network: Network, job: Fit, optimizer: torch.optim.Optimizer) -> tuple[dict[str, Tensor], int]:
    """The steps themselves: the sum of each term and how many there were.

    Nothing in here asks a device for a number, for the device would have to finish first.
    """
    gradient = network.vector.grad
    assert gradient is not None
    start = network.vector.detach().clone() if job.sgd.proximal else None
    totals: dict[str, Tensor] = {}
    steps = 0
    for batch in prefetched(job.batches, network.device):
        gradient.zero_()
        terms = job.loss(network, batch)
        if "loss" not in terms:
            continue
        network.backward(terms["loss"])
        if start is not None:
            gradient.add_(network.vector.detach() - start, alpha=job.sgd.proximal)
        if job.sgd.clip_norm:
            torch.nn.utils.clip_grad_norm_([network.vector], job.sgd.clip_norm)
        if job.before_step:
            job.before_step(network)
        optimizer.step()
        if job.after_step:
            job.after_step(network)
        for name, term in terms.items():
            totals[name] = totals[name] + term.detach() if name in totals else term.detach()
        steps += 1
    return totals, steps


def cosine(lr: float, progress: float) -> float:
    """Cosine annealing from `lr` at progress 0 to nothing at progress 1."""
    return lr * 0.5 * (1 + math.cos(math.pi * progress))

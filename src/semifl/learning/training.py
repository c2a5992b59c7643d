"""The one training loop of the project: start weights, batches, a loss, an optimiser; weights and facts out."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from semifl.learning.network import Network
from semifl.learning.weights import Weights
from semifl.randomness import Seed

Memory = dict[str, Tensor]  # what training keeps between rounds, by name
# Named terms, of which "loss" is minimised; a batch that has none has nothing to teach, and no step is taken.
Loss = Callable[[Network, Any], dict[str, Tensor]]


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent as the paper uses it; `clip_norm` 0 means no clipping.

    `proximal` is FedProx's μ: with it a step also descends μ/2 · ‖W − start‖².
    """

    lr: float
    momentum: float = 0.9
    nesterov: bool = True
    weight_decay: float = 5e-4
    clip_norm: float = 0.0
    proximal: float = 0.0

    def optimizer(self, network: Network, memory: Memory | None) -> torch.optim.SGD:
        optimizer = torch.optim.SGD(
            [network.vector],
            lr=self.lr,
            momentum=self.momentum,
            nesterov=self.nesterov and self.momentum > 0,
            weight_decay=self.weight_decay,
            fused=True,
        )
        if memory and "momentum" in memory:
            optimizer.state[network.vector]["momentum_buffer"] = memory["momentum"].to(network.device, copy=True)
        return optimizer


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
    before_step: Callable[[Network], None] | None = None
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
    optimizer = job.sgd.optimizer(network, job.memory)
    gradient = network.vector.grad
    assert gradient is not None
    start = network.vector.detach().clone() if job.sgd.proximal else None
    totals: dict[str, Tensor] = {}
    steps = 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(job.seed.number())
        for batch in job.batches:
            gradient.zero_()
            terms = job.loss(network, _to(batch, network.device))
            if "loss" not in terms:
                continue
            terms["loss"].backward()  # type: ignore[no-untyped-call]
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
    buffer = optimizer.state[network.vector].get("momentum_buffer")
    memory = {} if buffer is None else {"momentum": buffer.cpu()}
    return Fitted(network.weights(), memory, {name: float(total) / steps for name, total in totals.items()})


def cosine(lr: float, progress: float) -> float:
    """Cosine annealing from `lr` at progress 0 to nothing at progress 1."""
    return lr * 0.5 * (1 + math.cos(math.pi * progress))


def _to(batch: Any, device: torch.device) -> Any:
    if device.type == "cpu":
        return batch
    if isinstance(batch, Tensor):
        return batch.to(device, non_blocking=True)
    parts = [_to(part, device) for part in batch]
    return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)

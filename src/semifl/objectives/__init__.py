"""Semi-supervised losses, one file each: what a batch of labeled and unlabeled pictures says a model should learn.

A file's class is a frozen dataclass whose fields are hyper-parameters. What a loss remembers from step to step (an
average teacher, a running class distribution) lies in a Memory of named tensors that the method keeps for it.
"""

from __future__ import annotations

from typing import ClassVar, Protocol

from torch import Tensor

from semifl.data.epochs import PairedBatch, View
from semifl.learning.network import Network
from semifl.learning.training import Memory
from semifl.learning.weights import Weights


class Objective(Protocol):
    """What an objective provides; one that remembers nothing inherits all but `views`, `ratio` and `loss`."""

    views: ClassVar[tuple[View, ...]]  # of each unlabeled picture; none: the loss looks at labels alone

    @property
    def ratio(self) -> int:
        """μ: unlabeled pictures per labeled one in a batch."""
        ...

    def loss(self, network: Network, batch: PairedBatch, memory: Memory, progress: float) -> dict[str, Tensor]:
        """Named terms, "loss" being the one to minimise; `progress` is how far training is, from 0 to 1."""
        ...

    def start(self, weights: Weights, classes: int) -> Memory:
        """What it remembers before the first step."""
        return {}

    def after_step(self, network: Network, memory: Memory) -> None:
        """Let what is remembered follow the network, in place."""

    def result(self, weights: Weights, memory: Memory) -> Weights:
        """The model to test: the one that was trained, or the average teacher."""
        return weights

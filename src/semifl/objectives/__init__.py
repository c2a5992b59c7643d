"""Semi-supervised losses, one file each: what a batch of labeled and unlabeled pictures says a model should learn.

A file's class is a frozen dataclass whose fields are hyper-parameters. What a loss remembers from step to step (an
average teacher, a running class distribution) lies in a Memory of named tensors that the method keeps for it.
"""

from __future__ import annotations

from torch import Tensor

from semifl.data.epochs import PairedBatch, View
from semifl.fields import Checked
from semifl.learning.network import Network
from semifl.learning.training import Memory
from semifl.learning.weights import Weights

OBJECTIVES = __name__  # this folder is the registry


class Objective(Checked):
    """What an objective provides; one that remembers nothing inherits all but `views`, `ratio` and `loss`.

    A batch may come without unlabeled pictures, where nobody has any: the loss is then that of the labels.
    """

    @property
    def views(self) -> tuple[View, ...]:
        """Of each unlabeled picture; none: the loss looks at labels alone."""
        raise NotImplementedError

    @property
    def ratio(self) -> int:
        """μ: unlabeled pictures per labeled one in a batch."""
        raise NotImplementedError

    def loss(self, network: Network, batch: PairedBatch, memory: Memory, progress: float) -> dict[str, Tensor]:
        """Named terms, "loss" being the one to minimise; `progress` is how far training is, from 0 to 1."""
        raise NotImplementedError

    def confident_from(self) -> float:
        """The confidence from which it believes a label; 0: it believes all."""
        return 0.0

    def start(self, weights: Weights, classes: int) -> Memory:
        """What it remembers before the first step."""
        return {}

    def after_step(self, network: Network, memory: Memory) -> None:
        """Let what is remembered follow the network, in place."""
        return None

    def result(self, weights: Weights, memory: Memory) -> Weights:
        """The model to test: the one that was trained, or the average teacher."""
        return weights

"""Semi-supervised losses, one file each: what a batch of labeled and unlabeled pictures says a model should learn.

A file's class is a frozen dataclass whose fields are hyper-parameters. What a loss remembers from step to step (an
average teacher, a running class distribution) lies in a Memory of named tensors that the method keeps for it.
"""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Protocol

from torch import Tensor

from semifl.data.epochs import PairedBatch, View
from semifl.learning.network import Network
from semifl.learning.training import Memory
from semifl.learning.weights import Weights

SHARES = ("threshold", "decay", "ramp_up", "ramp_from", "ramp_to")  # between 0 and 1
COUNTS = ("ratio", "weak_views", "strong_views", "window")  # at least 1
POSITIVE = ("temperature", "mix_beta", "rotation_lr")
NOT_NEGATIVE = ("unlabeled_weight", "anchor_weight", "rotation_weight")


class Objective(Protocol):
    """What an objective provides; one that remembers nothing inherits all but `views`, `ratio` and `loss`.

    A batch may come without unlabeled pictures, where nobody has any: the loss is then that of the labels.
    """

    @property
    def views(self) -> tuple[View, ...]:
        """Of each unlabeled picture; none: the loss looks at labels alone."""
        ...

    @property
    def ratio(self) -> int:
        """μ: unlabeled pictures per labeled one in a batch."""
        ...

    def loss(self, network: Network, batch: PairedBatch, memory: Memory, progress: float) -> dict[str, Tensor]:
        """Named terms, "loss" being the one to minimise; `progress` is how far training is, from 0 to 1."""
        ...

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

    def __post_init__(self) -> None:
        assert is_dataclass(self)
        for name in (field.name for field in fields(self)):
            value = getattr(self, name)
            if name in SHARES and not 0 <= value <= 1:
                raise ValueError(f"{name} must lie between 0 and 1, not {value}")
            if name in COUNTS and value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
            if name in POSITIVE and not 0 < value < math.inf:
                raise ValueError(f"{name} must be above 0, not {value}")
            if name in NOT_NEGATIVE and not 0 <= value < math.inf:
                raise ValueError(f"{name} must not be negative, but is {value}")

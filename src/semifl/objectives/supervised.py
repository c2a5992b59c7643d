"""Cross-entropy of labeled pictures: what every other objective starts from, and the paper's two baselines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from semifl.data.epochs import PairedBatch, View
from semifl.fields import ShareBelowOne
from semifl.learning.network import Network
from semifl.learning.training import Memory
from semifl.objectives import Objective
from semifl.objectives._terms import labeled_loss


@dataclass(frozen=True)
class Supervised(Objective):
    smoothing: ShareBelowOne = 0.0  # share of a label that is spread over all classes alike

    views: ClassVar[tuple[View, ...]] = ()
    ratio: ClassVar[int] = 0

    def loss(self, network: Network, batch: PairedBatch, memory: Memory, progress: float) -> dict[str, Tensor]:
        return {"loss": labeled_loss(network, batch, self.smoothing)}

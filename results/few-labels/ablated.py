"""`balanced` without one of its parts, for the ablation of this study: `method.name = "ablated:Ablated"`.

Parts that are a field of `balanced` (statistics, server_steps and warmup_steps, global momentum) are left out by it.
Python must find this file: `PYTHONPATH=results/few-labels semifl table …`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from semifl.federation.world import Client, Round, Server, Update
from semifl.learning.targets import PseudoLabels, most_likely
from semifl.learning.weights import Weights
from semifl.methods.balanced import Balanced, Sent

CUT = 0.95  # the paper's threshold, in place of weights


@dataclass(frozen=True)
class Ablated(Balanced):
    """`without` names what is left out; `"nothing"` is `balanced` itself, to the bit."""

    without: Literal["nothing", "strong labels", "weights", "offset", "own classes"] = "nothing"

    def server_update(self, server: Server, W: Weights, t: Round) -> Weights:
        """Without strong labels SemiFL's server: weak views."""
        if self.without != "strong labels":
            return super().server_update(server, W, t)
        steps = self.server_steps + (self.warmup_steps if t.index == 1 else 0)
        in_an_epoch = math.ceil(len(server.labels) / self.server_batch)
        return self.server_fit(t, W, server, steps=max(steps, self.server_epochs * in_an_epoch)).weights

    def client_update(self, client: Client, sent: Sent, t: Round) -> Update | None:
        """With a threshold a client may be sure of nothing, and abstains."""
        update = super().client_update(client, sent, t)
        return update if update.examples else None

    def labels(self, p: Tensor, sent: Sent) -> PseudoLabels:
        return most_likely(p) if self.without == "own classes" else super().labels(p, sent)

    def weigh(self, confidence: Tensor) -> Tensor:
        return (confidence >= CUT).float() if self.without == "weights" else super().weigh(confidence)

    def offset(self, y: Tensor, sent: Sent) -> Tensor | None:
        return None if self.without == "offset" else super().offset(y, sent)

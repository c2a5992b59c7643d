"""`balanced` without one of its parts, for the ablation of this study: `method.name = "ablated:Ablated"`.

Parts that are a field of `balanced` (statistics, server_steps and warm_up, global momentum) are left out by that field.
Python must find this file: `PYTHONPATH=results/few-labels semifl table …`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from semifl.data.augment import weak
from semifl.federation.world import Client, Federation, Round, RoundResult, Server, Update
from semifl.learning.norm_correction import measured
from semifl.learning.targets import most_likely
from semifl.learning.training import Fit
from semifl.learning.weights import Snapshot, Weights, changed
from semifl.methods.balanced import NEGLIGIBLE, Balanced, Sent, State, at_home, shares, weights_of

CUT = 0.95  # the paper's threshold, in place of weights


@dataclass(frozen=True)
class Ablated(Balanced):
    """`without` names what is left out; `"nothing"` is `balanced` itself, to the bit."""

    without: Literal["nothing", "strong labels", "weights", "offset", "own classes", "average"] = "nothing"

    def round(self, t: Round, state: State, server: Server, clients: Federation) -> RoundResult:
        played = super().round(t, self._recent(state), server, clients)
        return RoundResult(self._recent(played.state), played.model)

    def finish(self, t: Round, state: State, server: Server, clients: Federation) -> Snapshot:
        return super().finish(t, self._recent(state), server, clients)

    def _recent(self, state: State) -> State:
        """Without a past average, the average is that of the round alone."""
        return state._replace(average={}) if self.without == "average" else state

    def server_update(self, server: Server, W: Weights, t: Round) -> Weights:
        if self.without != "strong labels":
            return super().server_update(server, W, t)
        steps = self.server_steps + (self.warm_up if t.index == 1 else 0)
        in_an_epoch = math.ceil(len(server.labels) / self.server_batch)
        return self.server_fit(t, W, server, steps=max(steps, self.server_epochs * in_an_epoch)).weights

    def client_update(self, client: Client, sent: Sent, t: Round) -> Update | None:
        model = sent.model
        view = weak(client.images, client.facts, client.seed.at("label"))
        p = client.outputs(model, view).softmax(dim=1)
        pseudo = most_likely(p if self.without == "own classes" else at_home(p, sent.ν))
        w = self.weigh(pseudo.confidence)
        client.observe(pseudo, w >= 0.5, said=p.argmax(dim=1))
        D = (w >= NEGLIGIBLE).nonzero().flatten()
        if len(D) == 0:
            return None
        y = w[:, None] * F.one_hot(pseudo.labels, client.facts.classes)
        batches = self.batches(client, y, D, self.client_batch, self.client_epochs)
        offset = None if self.without == "offset" else (shares(y) / sent.π).log()
        loss = partial(self.loss, offset=offset)
        fitted = client.fit(Fit(model.weights, batches, loss, self.client_sgd(t), client.seed.under("fit")))
        after = dict(fitted.weights)
        if self.statistics == "cohort":
            after |= measured(client.statistics(model.weights), model.stats)
        return Update(changed(after, self.sent_weights(sent)), len(D), fitted.terms, {})

    def weigh(self, confidence: Tensor) -> Tensor:
        return (confidence >= CUT).float() if self.without == "weights" else weights_of(confidence)

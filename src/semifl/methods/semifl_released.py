"""SemiFL as the authors' released program runs it: clients first, kept momentum, clipping, another strong view.

The presets under the paper's names use it. `docs/methods/semifl_released.md` lists what differs from Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from semifl.data.augment import Kind
from semifl.federation.world import Federation, Round, RoundResult, Server
from semifl.fields import NotNegative
from semifl.learning.batchnorm import BatchNormStats
from semifl.learning.server_optimizer import Past
from semifl.learning.training import Fitted, Memory
from semifl.learning.weights import Snapshot, Weights
from semifl.methods.semifl import SemiFL


class State(NamedTuple):
    weights: Weights  # W
    past: Past  # of the global step
    server_memory: Memory  # the server's momentum buffer, if it is kept
    stats: BatchNormStats  # sBN of `weights`, from the end of the round


@dataclass(frozen=True)
class SemiFLReleased(SemiFL):
    cohort_rounding: Literal["floor", "ceil"] = "ceil"  # of C·M
    clip_norm: NotNegative = 1.0  # largest gradient norm of a step; 0 does not clip
    statistics: Literal["server", "cohort", "all"] = "all"  # whose pictures the BatchNorm statistics come from
    strong_view: Kind = "reference"  # FixMatch's own, or the released SemiFL program's
    client_buffers: Literal["fresh", "kept"] = "kept"  # the clients' momentum between their rounds
    server_buffers: Literal["fresh", "kept"] = "kept"  # the server's momentum between rounds

    mix_draw: ClassVar[Literal["round", "epoch"]] = "epoch"
    mix_view: ClassVar[Literal["shared", "own"]] = "own"

    def start(self, weights: Weights) -> State:  # type: ignore[override]
        return State(weights, self.server_optimizer.start(weights), {}, {})

    def round(self, t: Round, state: State, server: Server, clients: Federation) -> RoundResult:  # type: ignore[override]
        """Clients first (on a random network in round 1), then the server."""
        S_t = self.cohort(clients, t)
        model = Snapshot(state.weights, state.stats or self.refresh(state.weights, server, clients, S_t))
        mean = self.aggregate(clients.each(S_t, model, t), model.weights)
        W, past = self.server_optimizer.step(state.weights, mean, state.past)
        fitted = self.server_fit(t, W, server, state.server_memory)
        stats = self.refresh(fitted.weights, server, clients, S_t)
        return RoundResult(
            State(fitted.weights, past, self.server_kept(fitted), stats), Snapshot(fitted.weights, stats)
        )

    def finish(self, t: Round, state: State, server: Server, clients: Federation) -> Snapshot:  # type: ignore[override]
        """The last round has just fine-tuned."""
        S_t = self.cohort(clients, t)
        return Snapshot(state.weights, state.stats or self.refresh(state.weights, server, clients, S_t))

    def server_kept(self, fitted: Fitted) -> Memory:
        return fitted.memory if self.server_buffers == "kept" else {}

    @property
    def keeps_momentum(self) -> bool:
        return self.client_buffers == "kept"

"""A client's loss by FixMatch's consistency: its own network labels each batch, as it is then."""

from __future__ import annotations

from torch import Tensor

from semifl.data.epochs import UnlabeledBatch
from semifl.federation.world import Client
from semifl.learning.network import Network
from semifl.learning.targets import Beliefs
from semifl.objectives.fixmatch import FixMatch


class Consistency:
    """Of batches of a weak and a strong view; such a client never abstains."""

    def __init__(self, fixmatch: FixMatch, client: Client) -> None:
        self._fixmatch, self._client = fixmatch, client
        self._beliefs = Beliefs(len(client.images))

    def loss(self, network: Network, batch: UnlabeledBatch) -> dict[str, Tensor]:
        guessed = self._fixmatch.consistency(network, *batch.views)
        self._beliefs.note(batch.positions, guessed.pseudo)
        return {"loss": guessed.loss}

    def tell(self) -> None:
        """After training: what the network last said of each picture."""
        self._beliefs.tell(self._client, self._fixmatch.threshold)

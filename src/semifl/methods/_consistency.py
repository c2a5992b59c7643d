"""A client that trains by FixMatch's consistency loss, labeling each batch with its own network as it is then."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from semifl.data.epochs import UnlabeledBatch
from semifl.federation.world import Client
from semifl.learning.network import Network
from semifl.learning.targets import Beliefs
from semifl.learning.training import SGD, Fit, Fitted
from semifl.learning.weights import Weights
from semifl.objectives.fixmatch import FixMatch


def consistency_fit(
    client: Client, W: Weights, batches: Iterator[UnlabeledBatch], fixmatch: FixMatch, sgd: SGD
) -> Fitted:
    """Batches of a weak and a strong view; such a client never abstains."""
    beliefs = Beliefs(len(client.images))

    def loss(network: Network, batch: UnlabeledBatch) -> dict[str, Tensor]:
        guessed = fixmatch.consistency(network, *batch.views)
        beliefs.note(batch.positions, guessed.pseudo)
        return {"loss": guessed.loss}

    fitted = client.fit(Fit(W, batches, loss, sgd, client.seed.under("fit")))
    beliefs.tell(client, fixmatch.threshold)
    return fitted

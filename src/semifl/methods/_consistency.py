"""A client's loss by FixMatch's consistency: its own network labels each batch, as it is then."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from semifl.data.epochs import UnlabeledBatch
from semifl.federation.world import Client
from semifl.learning.network import Network
from semifl.learning.targets import Beliefs, PseudoLabels, pseudo_labels
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


def said_of(network: Network, weak_view: Tensor) -> PseudoLabels:
    """Pseudo-labels by the network as it is at this step, by the statistics of this very batch."""
    with torch.no_grad():
        return pseudo_labels(network(weak_view))


def sure_places(pseudo: PseudoLabels, threshold: float) -> Tensor:
    """Where the confident pictures of a batch are; one alone comes twice, for BatchNorm cannot normalise one value.

    Twice the same picture has the same mean and variance as once, so nothing else changes.
    """
    places = pseudo.confident(threshold).nonzero().flatten()
    return places.repeat(2) if len(places) == 1 else places


def sure_loss(network: Network, strong_view: Tensor, pseudo: PseudoLabels, places: Tensor) -> Tensor:
    """L_fix as the released SemiFL program has it: only confident pictures go through the network."""
    return F.cross_entropy(network(strong_view[places]), pseudo.labels[places])

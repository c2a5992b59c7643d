"""FedBN (Li et al. 2021): the scale and shift of every BatchNorm layer stay with their client and are never averaged.

BatchNorm layers are those that have statistics; for a model without them nothing stays at home.
"""

from __future__ import annotations

from semifl.learning.batchnorm import BatchNormStats
from semifl.learning.training import Memory
from semifl.learning.weights import Weights

PREFIX = "norm "  # in a client's memory, where the optimiser's buffers may lie too


def shared(weights: Weights, stats: BatchNormStats) -> Weights:
    """The part that travels to the server."""
    return {name: tensor for name, tensor in weights.items() if not _is_norm(name, stats)}


def kept(weights: Weights, stats: BatchNormStats) -> Memory:
    """The part that the client remembers."""
    return {PREFIX + name: tensor for name, tensor in weights.items() if _is_norm(name, stats)}


def restored(weights: Weights, memory: Memory | None) -> Weights:
    """The server's model with the client's own norms, as far as it remembers any."""
    return {name: (memory or {}).get(PREFIX + name, tensor) for name, tensor in weights.items()}


def _is_norm(name: str, stats: BatchNormStats) -> bool:
    return name.rpartition(".")[0] in stats

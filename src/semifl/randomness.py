"""Randomness that is addressed, not consumed.

Every stream is derived from a seed and an address such as ("round", 3, "client", 17, "weak"), so the same
seed gives the same bits whatever the number of workers, the order of clients, or how often a run was resumed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
import torch

Step = str | int


@dataclass(frozen=True)
class Seed:
    """A place in the tree of random streams."""

    value: int
    path: tuple[Step, ...] = ()

    def under(self, *steps: Step) -> Seed:
        """The sub-tree below this place."""
        return Seed(self.value, self.path + steps)

    def at(self, *steps: Step) -> torch.Generator:
        """A torch generator for the address below this place; on the CPU, so every device sees the same draws."""
        return torch.Generator().manual_seed(self.under(*steps).number())

    def numpy_at(self, *steps: Step) -> np.random.Generator:
        """A NumPy generator for the same addresses, for laws torch cannot draw from a generator (Beta, Dirichlet)."""
        return np.random.Generator(np.random.PCG64(self.under(*steps).number()))

    def number(self) -> int:
        """A 63-bit number that identifies this address."""
        # Each step carries its type and length, so ("a", 12) and ("a1", 2) or ("a", "12") cannot meet.
        words = [f"{_kind(step)}:{len(str(step))}:{step}" for step in (self.value, *self.path)]
        digest = hashlib.blake2b("/".join(words).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") >> 1


def _kind(step: Step) -> str:
    return "str" if isinstance(step, str) else "int"  # a NumPy integer is the same number

"""The section [deploy] of a run's file: how patient the hub is, and how letters travel."""

from __future__ import annotations

import math
from dataclasses import dataclass

from semifl.deploy.wire import Precision


@dataclass(frozen=True)
class Settings:
    deadline: float = 600.0  # seconds that sites have for a round
    min_updates: int = 1  # sites that must answer, or the round is repeated
    attempts: int = 3  # times that sites are asked in a round before the hub waits for more of them to come back
    precision: Precision = "fp32"  # of the weights as they travel; fp16 halves the traffic and leaves the bit promise
    largest_update: float = 10.0  # change, in norms of the model sent, above which a site is excluded; 0: no limit

    def __post_init__(self) -> None:
        if not 1 <= self.deadline < math.inf:
            raise ValueError(f"deadline must be at least 1 second, not {self.deadline}")
        for name in ("min_updates", "attempts"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 <= self.largest_update < math.inf:
            raise ValueError(f"largest_update must not be negative, but is {self.largest_update}")

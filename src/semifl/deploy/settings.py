"""The section [deploy] of a run's file: how patient the hub is, and how packets travel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from semifl.deploy.wire import Precision
from semifl.fields import Checked, Count, NotNegative, Range


@dataclass(frozen=True)
class Settings(Checked):
    deadline: Annotated[float, Range(1)] = 600.0  # seconds that sites have for a round
    min_updates: Count = 1  # sites that must answer, or the round is repeated
    attempts: Count = 3  # times that sites are asked in a round before the hub waits for more of them to come back
    precision: Precision = "fp32"  # of the weights as they travel; fp16 halves the traffic and leaves the bit promise
    max_share: Annotated[float, Range(0, 1, open_least=True)] = (
        0.5  # largest part of a mean that a site's update may be
    )
    largest_update: NotNegative = 10.0  # change, in norms of the model sent, that excludes a site; 0: no limit

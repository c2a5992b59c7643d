"""A site's trainer: a process beside the engine's, within the limits of the site's policy.

If it dies, the job has failed and the site lives: the next job has a new one.
"""

from __future__ import annotations

import logging
from typing import Any

from semifl.deploy.leash import on_a_leash
from semifl.deploy.policy import Limits
from semifl.errors import RunStopped
from semifl.federation.sites import Place
from semifl.federation.workers import Here, JobFailed, Workers

log = logging.getLogger(__name__)

DIED = "its trainer process died: killed, or out of memory"


class TrainerFailed(Exception):
    """Why a job came to nothing, in words that may leave the site."""


class Trainer:
    """What trains at one place; in a process of its own where `apart`."""

    def __init__(self, place: Place, limits: Limits, apart: bool) -> None:
        self._place, self._limits, self._apart = place, limits, apart
        self._pool: Workers | Here | None = None

    def run(self, job: Any, common: Any, item: Any) -> Any:
        """One job; a process that dies is a failure, not a reason to try again at once."""
        if self._pool is None:
            self._pool = Workers(self._place, 1, max_losses=0) if self._apart else Here(self._place)
        result = None
        with on_a_leash(self._pool, self._limits) as leash:
            try:
                result = next(self._pool.run(job, common, [item]))
            except RunStopped:
                self.close()
        if result is None:
            result = JobFailed(leash.broken or DIED, "")
        if isinstance(result, JobFailed):
            log.error("%s %s", result.reason, result.trace)
            # What code says of its failure can name files and values: only the kind of error may be told.
            raise TrainerFailed(f"its training raised {result.kind}" if result.kind else result.reason)
        return result

    def close(self) -> None:
        if self._pool:
            self._pool.close()
            self._pool = None

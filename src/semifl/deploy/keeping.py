"""What runs keep on a site's disk: memory and frozen features, and when they go."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

from semifl.configuration.build import frozen_features, refuse_large_features
from semifl.deploy.order import Accepted, TooMuchHere
from semifl.deploy.policy import Policy
from semifl.errors import UserError
from semifl.federation.sites import Place
from semifl.regular import last_touched, remove_folder, size_of

log = logging.getLogger(__name__)

FEATURES = "features"  # the folder of frozen features below that of a run


@dataclass(frozen=True)
class Keeping:
    """The folder of a site's runs. What belongs to a run lies apart from what is the site's, whatever it is called."""

    runs: Path
    policy: Policy

    def folder_of(self, run: str) -> Path:
        return self.runs / run

    def make_room(self, run: str) -> None:
        """A hub may begin any number of runs: what the longest untouched ones left goes, where it is too much."""
        others = [path for path in self.runs.glob("*") if path != self.folder_of(run)]
        left = sum(map(size_of, others)) - self.policy.limits.largest_memory * 1e9
        for other in sorted(others, key=last_touched):
            if left <= 0:
                return
            log.warning("forgot run %s, for limits.largest_memory", other.name)
            left -= size_of(other)
            remove_folder(other)

    def with_features(self, place: Place, accepted: Accepted) -> Place:
        """Frozen features stay with the run, as long as there is no other and the policy has room for them."""
        folder = self.folder_of(accepted.run) / FEATURES
        for other in self._features():
            if other != folder:
                remove_folder(other)
        kept = frozen_features(folder, place.facts, accepted.spec, accepted.method, accepted.seed, accepted.precision)
        tested = sum(len(labels) for _, labels in place.graded.values())
        largest, (own, tested) = self.policy.limits.largest_features, self.policy.rounded([len(place.images), tested])
        try:
            refuse_large_features(kept, place, own, tested, largest, "limits.largest_features")
        except UserError as error:
            log.warning("%s", error)
            raise TooMuchHere(
                f"the order's frozen features take more than the {largest:g} GB of disk that this site's policy allows "
                "(limits.largest_features): lower model.views"
            ) from error
        return replace(place, facts=kept.facts_of_tickets(), features=kept)

    def forget_features(self) -> None:
        """When a run is over: they are computed again if it goes on."""
        for folder in self._features():
            remove_folder(folder)

    def _features(self) -> list[Path]:
        return list(self.runs.glob(f"*/{FEATURES}"))

"""Processor seconds of bookkeeping per client, for cohorts of 100 to 100,000: replies tallied, and the record."""

from __future__ import annotations

import gc
import json
import time

from measure import report

from semifl.federation.signals import BINS
from semifl.federation.tally import Tally
from semifl.federation.world import Reply, Round, Update
from semifl.randomness import Seed
from semifl.running.recording import measure

COHORTS = (100, 1_000, 10_000, 100_000)
CLASSES, PICTURES = 10, 500


def reply(client: int) -> Reply:
    """Return what a client of SemiFL tells beside its change of the weights, which is averaged elsewhere."""
    facts = {
        "lr": 0.03,
        "images": PICTURES,
        "confident": client % PICTURES,
        "confidence": 0.8 * PICTURES,
        "predicted": [PICTURES // CLASSES] * CLASSES,
        "classes": [client % PICTURES // CLASSES] * CLASSES,
        "confidence_bins": [PICTURES // BINS] * BINS,
    }
    terms = {"loss": 1.0, "fix": 0.5, "mix": 0.5, "agreement": 0.9}
    return Reply(client, Update({}, client % PICTURES, terms, {}), "trained", "", facts)


def seconds(cohort: int) -> float:
    replies = [reply(client) for client in range(cohort)]
    gc.collect()
    gc.freeze()  # the replies stand for what arrives one by one: they are not to be looked through again
    tally = Tally()
    began = time.process_time()
    for each in replies:
        tally.received(each)
    json.dumps(measure(Round(1, 0.0, Seed(0)), tally, 1.0, 0))
    return time.process_time() - began


def main() -> None:
    base = min(seconds(COHORTS[0]) for _ in range(20)) / COHORTS[0]
    for cohort in COHORTS:
        took = min(seconds(cohort) for _ in range(20 if cohort < 10_000 else 3))
        report(
            "bookkeeping",
            f"cohort {cohort}",
            ratio=took / cohort / base,
            compared_with=f"a client of a cohort of {COHORTS[0]}",
            seconds=took,
            microseconds_per_client=1e6 * took / cohort,
        )


if __name__ == "__main__":
    main()

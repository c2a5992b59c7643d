"""Does a run directory reproduce? Its first rounds are run again elsewhere and compared, bit for bit."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from semifl.configuration.config import Stop, of_run
from semifl.errors import UserError
from semifl.records.directory import RunDirectory
from semifl.records.record import RoundRecord
from semifl.running.context import Silent
from semifl.running.loop import start
from semifl.running.more_rounds import first_schedule
from semifl.running.recording import environment

MATTERS = ("semifl", "torch", "numpy", "processor", "cpu_capability")  # what bits depend on beside the configuration


class Verdict(NamedTuple):
    """How many rounds were compared, the first that differs (0 if none) and in what, and what changed around them."""

    rounds: int
    differs_at: int
    fields: list[str]
    changed: dict[str, tuple[str, str]]


class _Enough(Exception):
    pass


class _Watch(Silent):
    """Ends the run after some rounds."""

    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def round(self, record: RoundRecord, best: float | None) -> None:
        if record["round"] >= self.rounds:
            raise _Enough


def reproduce(directory: Path, rounds: int, workers: int, device: str) -> Verdict:
    """Run the first rounds of a run again and compare all but the seconds."""
    run = RunDirectory(directory)
    config = of_run(run)
    first = first_schedule(run, config)
    recorded = run.rounds()[: min(rounds, first.until)]
    if not recorded:
        raise UserError(f"{directory} has no finished round to compare with")
    # A rule of [stop] goes by the clock, or by rounds that this repetition has not; how often the model was tested may
    # have changed on the way, so here it always is.
    shown = replace(config.run, labels_only=False, rounds=first.rounds, test_every=1)
    config = replace(config, run=shown, stop=Stop())
    with TemporaryDirectory() as elsewhere:
        again = RunDirectory(Path(elsewhere) / "again")
        with suppress(_Enough):
            start(config, again.path, workers, device, _Watch(len(recorded)))
        repeated = again.rounds()
    then, now = run.environment(), environment(config.table())
    changed = {key: (str(then.get(key)), str(now[key])) for key in MATTERS if then.get(key) != now[key]}
    for before, after in zip(recorded, repeated, strict=True):
        if fields := _differing(before, after):
            return Verdict(len(recorded), before["round"], fields, changed)
    return Verdict(len(recorded), 0, [], changed)


def _differing(before: RoundRecord, after: RoundRecord) -> list[str]:
    """The keys of a recorded round that have other values in its repetition, which is always tested."""
    others = ["seconds"] if "accuracy" in before else ["seconds", "loss"]  # nobody measured the loss then
    repeated = {**after}
    keys = [key for key in before if key not in others]
    # As text, in which what is not a number, as older versions recorded it, is equal to itself.
    return [key for key in keys if json.dumps(before[key]) != json.dumps(repeated.get(key))]  # type: ignore[literal-required]

"""Does a run directory reproduce? Its first rounds are run again elsewhere and compared, bit for bit."""

from __future__ import annotations

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
    # A rule of [stop] goes by the clock, or by rounds that this repetition has not.
    config = replace(config, run=replace(config.run, labels_only=False, rounds=first.rounds), stop=Stop())
    with TemporaryDirectory() as elsewhere:
        again = RunDirectory(Path(elsewhere) / "again")
        with suppress(_Enough):
            start(config, again.path, workers, device, _Watch(len(recorded)))
        repeated = again.rounds()
    then, now = run.environment(), environment()
    changed = {key: (str(then.get(key)), str(now[key])) for key in MATTERS if then.get(key) != now[key]}
    for before, after in zip(recorded, repeated, strict=True):
        fields = [key for key in before if key != "seconds" and before[key] != after.get(key)]
        if fields:
            return Verdict(len(recorded), before["round"], fields, changed)
    return Verdict(len(recorded), 0, [], changed)

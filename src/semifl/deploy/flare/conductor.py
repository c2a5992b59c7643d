"""Sees a run through from an operator's desk: as many jobs as it takes, one after the other.

FLARE lets a site join only when a job begins, and forgets a job when the hub goes down. So a run is played in jobs,
each of which goes on after the last complete round: a new one begins when a site has come back, and when the hub has.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from semifl.deploy.flare.controller import OUTCOME, RESULTS
from semifl.deploy.flare.job import job_name, write_job
from semifl.deploy.flare.session import HubDown, Line, NotRunning
from semifl.deploy.hub import read_settings
from semifl.deploy.kit import Kit
from semifl.durable import replace_text
from semifl.errors import RunStopped, UserError
from semifl.experiments.records import Record
from semifl.experiments.toml import Table

POLL = 0.5  # seconds between two questions to the hub
LOOK_FOR_SITES = 5.0  # seconds between two looks for sites that have come back
SETTLING = 15.0  # seconds that a job may take to reach all its sites
MOST_FAILURES = 5  # jobs in a row that end without a new round


class Watcher(Protocol):
    """Who is told how the run goes."""

    def said(self, message: str) -> None: ...

    def round(self, record: Record, best: float, rounds: int) -> None: ...


@dataclass
class Conductor:
    """One run, followed from here into the directory `out`, a copy of what the hub keeps."""

    kit: Kit
    name: str
    table: Table
    out: Path
    watcher: Watcher
    records: list[Record] = field(default_factory=list)
    began: bool = False  # whether a job waits or runs at the hub
    _line: Line | None = None
    _told: set[str] = field(default_factory=set)
    _looked: float = 0.0

    def see_through(self) -> Record:
        """Play the run to its end and bring its results here."""
        try:
            return self._see_through()
        finally:
            if self._line is not None:  # its threads would keep this process alive
                self._line.close()

    def _see_through(self) -> Record:
        failures, known = 0, -1
        while True:
            outcome = self._one_job()
            if outcome["state"] == "finished":
                return json.loads((self.out / "result.json").read_text(encoding="utf-8"))  # type: ignore[no-any-return]
            if outcome["state"] in ("refused", "stopped", "failed"):
                raise _last_word(outcome, self.name)
            failures = 0 if self._known > known else failures + 1
            known = self._known
            if failures >= MOST_FAILURES:
                why = outcome["reason"] or outcome["state"]
                raise RunStopped(f"{failures} jobs in a row ended without a complete round ({why}); see the hub's logs")
            self._say(outcome["reason"] or "going on after the last complete round")
            time.sleep(POLL)

    def _one_job(self) -> dict[str, str]:
        """Begin a job, or find the one that runs already, and follow it to its end."""
        self.began = False
        job = self._find() or self._begin()
        self.began = True
        began = time.monotonic()
        while True:
            try:
                line = self._open()
                status = line.status(job)
                if status.startswith("FINISHED"):
                    return self._collect(line, job, status)
                if job not in line.running(job_name(self.name)).values():
                    return {"state": "lost", "reason": "the hub was restarted; going on after the last complete round"}
                self._follow(line, job, began)
            except NotRunning:  # on its way to the sites, or coming to its end
                pass
            except HubDown as error:
                self._hang_up(str(error))
            time.sleep(POLL)

    def _find(self) -> str | None:
        while True:
            try:
                return self._open().running(job_name(self.name)).get(job_name(self.name))
            except HubDown as error:
                self._hang_up(str(error))
                time.sleep(POLL)

    def _begin(self) -> str:
        settings, _ = read_settings(self.table)
        while True:
            try:
                line = self._open()
                here = [site for site in line.connected() if site in self.kit.sites]
                if len(here) >= settings.min_updates:
                    with tempfile.TemporaryDirectory() as folder:
                        return line.submit(
                            write_job(Path(folder), self.name, self.table, self.kit.sites, settings.min_updates)
                        )
                self._say(f"waiting for sites: {len(here)} of {len(self.kit.sites)} are connected")
            except HubDown as error:
                self._hang_up(str(error))
            time.sleep(POLL)

    def _follow(self, line: Line, job: str, began: float) -> None:
        """Hear what is new, and ask for a new job when a site has come back."""
        question: dict[str, Any] = {"after": self._known}
        news = line.ask(job, question)
        self._hear(news)
        now = time.monotonic()
        if now - began > SETTLING and now - self._looked > LOOK_FOR_SITES:
            self._looked = now
            here = [site for site in line.connected() if site in self.kit.sites]
            if back := line.idle(here, job):
                self._say(f"{', '.join(back)} came back: the next round begins with everyone")
                line.ask(job, question | {"gone": back, "wish": "paused"})

    def _hear(self, news: dict[str, Any]) -> None:
        """Pass on what is new, and keep the copy of the run up to date: a report can be made of it at any time."""
        for warning in news.get("warnings", ()):
            self._say(f"warning: {warning}")
        if "config" not in news:
            return
        self.out.mkdir(parents=True, exist_ok=True)
        replace_text(self.out / "config.toml", news["config"])
        if new := [record for record in news["rounds"] if record["round"] > self._known]:
            self._add(new, news["config"])
            replace_text(self.out / "rounds.jsonl", "".join(json.dumps(record) + "\n" for record in self.records))

    @property
    def _known(self) -> int:
        return self.records[-1]["round"] if self.records else 0

    def _add(self, records: list[Record], config: str) -> None:
        for record in records:
            self.records.append(record)
            best = max(each["accuracy"] for each in self.records)
            self.watcher.round(record, best, read_rounds(config))

    def _collect(self, line: Line, job: str, status: str) -> dict[str, str]:
        """The job's result: the run as it stands, and the hub's last word on it."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = sorted(line.fetch(job, Path(folder)).rglob(f"{RESULTS}/{OUTCOME}"))
            except (OSError, TypeError, NotRunning):
                found = []
            if not found:
                return {
                    "state": "aborted",
                    "reason": f"FLARE ended the job: {status.removeprefix('FINISHED:').lower()}",
                }
            outcome: dict[str, str] = json.loads(found[0].read_text(encoding="utf-8"))
            if outcome["state"] == "refused":
                return outcome
            self.out.mkdir(parents=True, exist_ok=True)
            for path in found[0].parent.iterdir():
                if path.name != OUTCOME:
                    shutil.copy2(path, self.out / path.name)
        self._catch_up()
        return outcome

    def _catch_up(self) -> None:
        """Rounds that were played between the last question and the job's end."""
        if not (self.out / "rounds.jsonl").exists():
            return
        lines = (self.out / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
        records = [json.loads(line) for line in lines]
        new = [record for record in records if record["round"] > self._known]
        self._add(new, (self.out / "config.toml").read_text(encoding="utf-8"))
        self.records = records

    def _open(self) -> Line:
        if self._line is None:
            self._line = Line(self.kit)
        return self._line

    def _hang_up(self, reason: str) -> None:
        self._say(f"{reason}; trying again")
        if self._line is not None:
            self._line.close()
            self._line = None

    def _say(self, message: str) -> None:
        """Each thing once: a hub that is down is down for many questions."""
        if message not in self._told:
            self._told.add(message)
            self.watcher.said(message)


def read_rounds(config: str) -> int:
    """How many rounds a run's file asks for."""
    return int(tomllib.loads(config).get("rounds", 0))


def _last_word(outcome: dict[str, str], name: str) -> Exception:
    reason = outcome["reason"]
    if outcome["state"] == "refused":
        return UserError(reason)
    if outcome["state"] == "stopped":
        return RunStopped(
            f"{name} was stopped; every complete round is kept, and 'semifl deploy run' goes on from there"
        )
    return RunStopped(reason)

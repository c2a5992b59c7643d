"""Sees a run through from an operator's machine: as many jobs as it takes, one after the other.

FLARE lets a site join only when a job begins, and forgets a job when the hub goes down. So a run is done in jobs,
each of which goes on after the last complete round: a new one begins when a site has come back, and when the hub has.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, TypeVar

from semifl.deploy.flare.controller import OUTCOME, RESULTS
from semifl.deploy.flare.job import job_name, write_job
from semifl.deploy.flare.mirror import Mirror, read_outcome
from semifl.deploy.flare.session import HubDown, HubLine, NotLetIn, NotRunning
from semifl.deploy.hub import read_settings
from semifl.deploy.kit import Kit
from semifl.errors import RunStopped, UserError
from semifl.records.record import Summary
from semifl.toml import Table

T = TypeVar("T")
JobEnd = dict[str, str]  # the hub's last word on a job: its state, and the reason
POLL = 0.5  # seconds between two questions to the hub
LOOK_FOR_SITES = 5.0  # seconds between two looks for sites that have come back
SETTLING = 15.0  # seconds that a job may take to reach all its sites
FIRST_WAIT = 30.0  # seconds that sites have to connect before a run begins with those that are there
MOST_FAILURES = 5  # jobs in a row that end without a new round
SHORTEST_WAIT, LONGEST_WAIT = 10.0, 300.0  # seconds until a round that too few sites answered is tried again
LONGEST_ABSENCE = 3600.0  # seconds after which a site that keeps leaving is let in again
FORGIVEN = 10  # times that long without leaving, and it may come back at once as any other
MOST_REFUSALS = 20  # times in a row that the hub lets nobody in before it is believed


class Return(NamedTuple):
    """When a site was last let in again, and how often it has been of late."""

    at: float
    times: int


@dataclass
class Supervisor:
    """One run, followed from here into a copy of what the hub keeps."""

    kit: Kit
    name: str
    table: Table
    mirror: Mirror
    say: Callable[[str], None]
    began: bool = False  # whether a job waits or runs at the hub
    _line: HubLine | None = None
    _refusals: int = 0
    _heard: bool = False  # whether the job at hand has answered
    _looked: float = 0.0
    _returns: dict[str, Return] = field(default_factory=dict)
    _since: float = field(default_factory=time.monotonic)
    _told: set[str] = field(default_factory=set)

    def supervise(self) -> Summary:
        """Play the run to its end and bring its results here."""
        self._tell(f"{self.name}: connecting to the hub")
        try:
            return self._see_through()
        finally:
            self.mirror.close()
            if self._line is not None:  # its threads would keep this process alive
                self._line.close()

    def _see_through(self) -> Summary:
        failures, waits, known = 0, 0, -1
        while True:
            outcome = self._one_job()
            if outcome["state"] == "finished":
                return self.mirror.result()
            if outcome["state"] in ("refused", "stopped", "failed"):
                raise _last_word(outcome, self.name)
            if outcome["state"] in ("lost", "ended"):  # sites need as long to come back as they need to come
                self._since = time.monotonic()
            is_new, known = self.mirror.known > known, self.mirror.known
            # A job that ends because sites are silent, or because one has come back, has not failed.
            failures = 0 if is_new else failures + (outcome["state"] not in ("waiting", "paused"))
            waits = waits + 1 if outcome["state"] == "waiting" and not is_new else 0
            if failures >= MOST_FAILURES:
                why = outcome["reason"] or outcome["state"]
                raise RunStopped(f"{failures} jobs in a row ended without a complete round ({why}); see the hub's logs")
            reason = f"{outcome['reason']}; " if outcome["reason"] else ""
            self._tell(f"{reason}going on after the last complete round")
            if outcome["state"] == "waiting":
                time.sleep(min(LONGEST_WAIT, SHORTEST_WAIT * 2**waits))

    def _one_job(self) -> JobEnd:
        """Begin a job, or find the one that runs already, and follow it to its end."""
        self.began, self._heard = False, False
        job = self._persist(self._find_or_begin)
        self.began = True
        since = time.monotonic()
        return self._persist(lambda line: self._look(line, job, since))

    def _persist(self, ask: Callable[[HubLine], T | None]) -> T:
        """Ask until there is an answer; a hub that is down may come back in hours."""
        while True:
            try:
                if self._line is None:
                    self._line = HubLine(self.kit)
                    self._refusals = 0
                answer = ask(self._line)
                if answer is not None:
                    return answer
            except NotRunning:  # a job on its way to the sites, or coming to its end
                pass
            except NotLetIn as error:
                self._refusals += 1
                if self._refusals >= MOST_REFUSALS:
                    raise UserError(f"{error}: is this kit the newest, and of this project?") from error
                self._hang_up(str(error))
            except HubDown as error:
                self._hang_up(str(error))
            time.sleep(POLL)

    def _find_or_begin(self, line: HubLine) -> str | None:
        """The run's job; None while too few sites are connected to begin one."""
        for job, name in line.running(job_name(self.name)).items():
            if name == job_name(self.name):
                return job
        settings, _ = read_settings(self.table)
        here = [site for site in line.connected() if site in self.kit.sites]
        early = time.monotonic() - self._since < FIRST_WAIT and len(here) < len(self.kit.sites)
        if len(here) < settings.min_updates or early:
            self._tell(f"waiting for sites: {len(here)} of {len(self.kit.sites)} are connected")
            return None
        with tempfile.TemporaryDirectory() as folder:
            job = line.submit(write_job(Path(folder), self.name, self.table, self.kit.sites, settings.min_updates))
        self._tell(f"{self.name}: the hub has it and prepares")
        return job

    def _look(self, line: HubLine, job: str, since: float) -> JobEnd | None:
        """How the job ended, or None as long as it has not."""
        status = line.status(job)
        if status.startswith("FINISHED"):
            return self._collect(line, job, status)
        if line.has_forgotten(job):
            return {"state": "lost", "reason": "the hub was restarted"}
        news = line.ask(job, {"after": self.mirror.known})
        self._heard = True
        self._told -= {message for message in self._told if "trying again" in message}  # the next outage is news again
        for warning in news.get("warnings", ()):
            self._tell(f"warning: {warning}")
        self.mirror.hear(news)
        self._readmit(line, job, since)
        return None

    def _readmit(self, line: HubLine, job: str, since: float) -> None:
        """Ask for a new job when a site has come back: it cannot join the one that runs."""
        now = time.monotonic()
        if now - since < SETTLING or now - self._looked < LOOK_FOR_SITES:
            return
        self._looked = now
        here = [site for site in line.connected() if site in self.kit.sites]
        try:
            back = line.idle(here, job)
        except (HubDown, NotRunning):  # a site that is silent keeps the hub waiting: that says nothing about the hub
            return
        back = [site for site in back if self._may_return(site, now)]
        if back:
            self._tell(f"{', '.join(back)} came back and will take part again")
            line.ask(job, {"after": self.mirror.known, "gone": back, "wish": "paused"})

    def _may_return(self, site: str, now: float) -> bool:
        """Each return ends everybody's job, so one that leaves again and again waits longer every time."""
        last, times = self._returns.get(site, Return(-math.inf, 0))
        wait = min(LONGEST_ABSENCE, SETTLING * 2**times)
        if now - last < wait:
            return False
        self._returns[site] = Return(now, 1 if now - last > FORGIVEN * wait else times + 1)
        return True

    def _collect(self, line: HubLine, job: str, status: str) -> JobEnd:
        """The job's result: the run as it stands, and the hub's last word on it."""
        with tempfile.TemporaryDirectory() as folder:
            try:
                found = sorted(line.fetch(job, Path(folder)).rglob(f"{RESULTS}/{OUTCOME}"))
            except (OSError, TypeError, NotRunning):  # a job that never ran has none
                found = []
            if not found:
                how = status.removeprefix("FINISHED:").lower()
                # Who aborts a job that has not begun wants it not to begin; FLARE aborts others for reasons of its own,
                # such as a site that leaves.
                state = "stopped" if how == "aborted" and not self._heard else "ended"
                return {
                    "state": state,
                    "reason": f"the job ended early ({how}); going on after the last complete round",
                }
            outcome: JobEnd = read_outcome(found[0])
            if outcome["state"] != "refused":
                self.mirror.take(found[0].parent)
        return outcome

    def _hang_up(self, reason: str) -> None:
        self._tell(f"{reason}; trying again")
        if self._line is not None:
            self._line.close()
            self._line = None

    def _tell(self, message: str) -> None:
        """Each thing once: a hub that is down is down for many questions."""
        if message not in self._told:
            self._told.add(message)
            self.say(message)


def _last_word(outcome: JobEnd, name: str) -> Exception:
    if outcome["state"] == "refused":
        return UserError(outcome["reason"])
    if outcome["state"] == "stopped":
        return RunStopped(
            f"{name} was stopped; every complete round is kept, and 'semifl deploy run' goes on from there"
        )
    return RunStopped(outcome["reason"])

"""An operator's line to the hub. FLARE has many errors for few causes: here they become three."""

from __future__ import annotations

import contextlib
import io
import logging
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from semifl.deploy.flare.controller import TOPIC
from semifl.deploy.flare.desk import harden_desk, refusals
from semifl.deploy.kit import Kit
from semifl.errors import UserError

PATIENCE = 10.0  # seconds to reach the hub before it counts as down
DISPATCHING = 60.0  # seconds that a job may be on its way to the sites; FLARE does not say since when it is


class HubDown(Exception):
    """The hub cannot be reached now."""


class NotLetIn(HubDown):
    """The hub does not open a session: a certificate that is no operator's, or a hub that is not ready yet."""


class NotRunning(Exception):
    """The job has ended, or has not begun."""


class HubLine:
    """A session with the hub; one that broke is replaced by opening a new line."""

    def __init__(self, kit: Kit) -> None:
        from nvflare.fuel.flare_api.flare_api import Session

        harden_desk()
        logging.getLogger("nvflare").setLevel(logging.CRITICAL)  # its threads tell of every broken connection
        with _translated(kit), contextlib.redirect_stdout(io.StringIO()):
            self._session = Session(kit.name, str(kit.folder))
            self._session.api.auto_login_max_tries = 1
            try:
                self._session.try_connect(PATIENCE)
            except BaseException:  # its threads would keep this process alive
                self.close()
                raise
        self._kit = kit
        self._on_its_way: dict[str, float] = {}  # jobs, and when they were first seen so

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._session.close()

    def submit(self, job: Path) -> str:
        with _translated(self._kit):
            return str(self._session.submit_job(str(job)))

    def ask(self, job: str, question: dict[str, Any]) -> dict[str, Any]:
        """What the running job says."""
        with _translated(self._kit):
            return dict(self._session.do_app_command(job, TOPIC, question))

    def status(self, job: str) -> str:
        """FLARE's word for how the job stands, such as RUNNING or FINISHED:COMPLETED."""
        with _translated(self._kit):
            return str(self._session.get_job_meta(job).get("status", ""))

    def running(self, name: str = "semifl-") -> dict[str, str]:
        """The names of jobs that wait or run, by their ids; `name` is how they begin.

        A hub that was restarted believes for ever that the jobs of its former life run: those are left out.
        """
        with _translated(self._kit):
            born = float(self._session.get_system_info().server_info.start_time)
            jobs = self._session.list_jobs(detailed=True, name_prefix=name)
        return {str(job["job_id"]): str(job["name"]) for job in jobs if _is_open(job, born, self._waited(job))}

    def has_forgotten(self, job: str) -> bool:
        """Whether the hub was restarted since it began this job: it then believes for ever that the job runs."""
        with _translated(self._kit):
            born = float(self._session.get_system_info().server_info.start_time)
            meta = self._session.get_job_meta(job)
        return not _is_open(meta, born, self._waited(meta)) and not str(meta.get("status", "")).startswith("FINISHED")

    def _waited(self, job: dict[str, Any]) -> float:
        """For how many seconds this line has seen a job on its way to the sites."""
        if job.get("status") != "DISPATCHED":
            return 0.0
        now = time.monotonic()
        return now - self._on_its_way.setdefault(str(job["job_id"]), now)

    def connected(self) -> list[str]:
        """The sites that the hub hears from."""
        with _translated(self._kit):
            return [client.name for client in self._session.get_system_info().client_info]

    def idle(self, sites: list[str], job: str) -> list[str]:
        """Those of the sites that answer and do not take part in the job; a lost site is silent, too."""
        with _translated(self._kit):
            told = self._session.get_client_job_status(sites) or []
        answered = {str(each["client_name"]) for each in told if "job_id" in each or each.get("status") == "no_jobs"}
        playing = {str(each["client_name"]) for each in told if each.get("job_id") == job}
        return sorted(answered - playing)

    def abort(self, job: str) -> None:
        with _translated(self._kit), contextlib.suppress(NotRunning):
            self._session.abort_job(job)

    def fetch(self, job: str, folder: Path) -> Path:
        """The job's result, downloaded below `folder`."""
        try:
            with _translated(self._kit), contextlib.redirect_stdout(io.StringIO()):
                return Path(self._session.download_job_result(job, str(folder)))
        except HubDown as error:
            if refusals:
                raise UserError(refusals.pop()) from error
            raise


def _is_open(job: dict[str, Any], born: float, dispatching: float) -> bool:
    """A job that was queued when the hub was restarted runs in its new life, so it is its start that counts.

    One that is on its way has no start yet: it is of the hub's former life if it stays so, for `dispatching` seconds.
    """
    status = str(job.get("status", ""))
    of_former_life = _began(job, born) < born
    forgotten = of_former_life and (status == "RUNNING" or (status == "DISPATCHED" and dispatching > DISPATCHING))
    return not status.startswith("FINISHED") and not forgotten


def _began(job: dict[str, Any], born: float) -> float:
    """In seconds; FLARE writes the start as a date when a job begins to run, and until then there is none."""
    try:
        return datetime.fromisoformat(str(job.get("start_time"))).timestamp()
    except ValueError:
        return float(job.get("submit_time", born))


@contextlib.contextmanager
def _translated(kit: Kit) -> Iterator[None]:
    from nvflare.apis.fl_exception import FLCommunicationError
    from nvflare.fuel.flare_api import api_spec as spec

    try:
        yield
    except (spec.AuthenticationError, spec.AuthorizationError) as error:
        raise UserError(f"the hub does not let {kit.name} do this: {error}") from error
    except spec.InvalidJobDefinition as error:
        raise UserError(f"the hub refuses the job: {error}") from error
    except (spec.JobNotRunning, spec.JobNotFound, spec.NoReply, spec.JobNotDone) as error:
        raise NotRunning(str(error)) from error
    except FLCommunicationError as error:
        raise NotLetIn(f"the hub at {kit.address}:{kit.port} does not let {kit.name} in") from error
    except (spec.NoConnection, spec.SessionClosed, ConnectionError, TimeoutError) as error:
        raise HubDown(f"the hub at {kit.address}:{kit.port} cannot be reached") from error
    except (spec.InternalError, RuntimeError) as error:
        if "no app command" in str(error):  # a job that has not come to its controller yet
            raise NotRunning(str(error)) from error
        raise HubDown(" ".join(str(error).split())) from error

"""The workers of a cluster that may take part: each is looked at when it joins, whenever that is."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable
from typing import Any

from distributed import Client, Security

from semifl.errors import RunStopped, UserError
from semifl.federation.cluster.address import Cluster
from semifl.federation.cluster.worker import Introduction, introduce, versions
from semifl.federation.workers import Log

CONNECT = 10  # seconds until a scheduler that does not answer is called absent
GRACE = 5  # seconds in which a worker that fits may still join those that do not
LOOK = 0.5  # seconds between two looks at who is there, while there is nobody


class Team:
    """Who may work. `welcome` makes a worker ready, or says why it cannot be."""

    def __init__(self, cluster: Cluster, log: Log, welcome: Callable[[Client, str], str] | None = None) -> None:
        self._cluster = cluster
        self._log = log
        self._welcome = welcome or (lambda client, worker: "")
        self._members: dict[str, Introduction] = {}
        self._refused: dict[str, str] = {}
        self._warned: set[str] = set()
        self._had_members = False
        self.client = connect(cluster)
        if sentence := cluster.warning():
            log.warn(sentence)

    def known(self) -> list[str]:
        """The workers as of the last look."""
        return list(self._members)

    def members(self) -> list[str]:
        """The same; if there is none, this waits for one, unless those who came first were all of the wrong kind."""
        patient_until = time.monotonic() + GRACE
        if not self._members:
            self.look()
        while not self._members:
            if self._refused and not self._had_members and time.monotonic() > patient_until:
                raise UserError(next(iter(self._refused.values())))
            which = "worker that fits" if self._refused else "worker"
            self._warn_once(
                f"{self._cluster.scheduler} has no {which}, so this waits for one: "
                f"start it with 'dask worker {self._cluster.scheduler} --nthreads 1'"
            )
            time.sleep(LOOK)
            self.look()
        return self.known()

    def look(self) -> None:
        """Who has joined, who is gone."""
        there = self.ask(lambda: list(self.client.nthreads()))
        for worker in self._members.keys() - set(there):
            del self._members[worker]
            self._log.event("worker lost", worker=worker)
        self._refused = {worker: why for worker, why in self._refused.items() if worker in there}
        new = [worker for worker in there if worker not in self._members and worker not in self._refused]
        if new:
            self._meet(new)

    def expel(self, worker: str) -> None:
        """It has lost what it was given, and is met again as if it had just joined."""
        self._members.pop(worker, None)

    def ask(self, question: Callable[[], Any]) -> Any:
        """Anything of the scheduler; one that is gone ends the run, which can be resumed."""
        try:
            return question()
        except (OSError, TimeoutError) as error:
            self.refuse_lost_scheduler()
            raise RunStopped(f"the scheduler {self._cluster.scheduler} does not answer ({error})") from error

    def refuse_lost_scheduler(self) -> None:
        if self.client.status != "running":
            raise RunStopped(
                f"the scheduler {self._cluster.scheduler} is gone: start it and its workers again, then go on"
            )

    def close(self) -> None:
        self.client.close(timeout=2)

    def _meet(self, new: list[str]) -> None:
        said = self.ask(lambda: self.client.run(introduce, self._cluster.device, workers=new, on_error="return"))
        for worker, introduction in said.items():
            if isinstance(introduction, OSError):  # gone before it could speak
                continue
            reason = _misfit(introduction) or self._welcome(self.client, worker)
            if reason:
                self._refused[worker] = f"worker {worker} gets no work: {reason}"
                self._log.event("worker refused", worker=worker, reason=reason)
                self._warn_once(self._refused[worker])
            else:
                self._members[worker] = introduction
                self._had_members = True
                self._log.event("worker joined", worker=worker, computes_on=introduction.kind)
                self._warn_of(worker, introduction)

    def _warn_of(self, worker: str, introduction: Introduction) -> None:
        if introduction.threads > 1:
            self._warn_once(
                f"worker {worker} has {introduction.threads} threads and uses one, for the sake of bits: "
                f"'dask worker {self._cluster.scheduler} --nthreads 1 --nworkers {introduction.threads}' uses all"
            )
        kinds = sorted({each.kind for each in self._members.values()})
        if len(kinds) > 1:
            self._warn_once(f"workers differ ({'; '.join(kinds)}), so bits depend on who does what")

    def _warn_once(self, sentence: str) -> None:
        if sentence not in self._warned:
            self._warned.add(sentence)
            self._log.warn(sentence)


def connect(cluster: Cluster) -> Client:
    for name in ("distributed", "distributed.client"):  # what a person must know is told in a sentence
        logging.getLogger(name).setLevel(logging.CRITICAL)
    tls = cluster.tls
    security = (
        Security(tls_ca_file=tls.ca, tls_client_cert=tls.cert, tls_client_key=tls.key, require_encryption=True)
        if tls
        else None
    )
    try:
        with warnings.catch_warnings():  # versions are compared here, worker by worker
            warnings.simplefilter("ignore")
            return Client(
                cluster.scheduler,
                security=security,
                timeout=CONNECT,
                set_as_default=False,
                direct_to_workers=cluster.direct,
            )
    except (OSError, TimeoutError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(
            f"no Dask scheduler answers at {cluster.scheduler} ({reason}); is 'dask scheduler' running?"
        ) from error


def _misfit(said: Introduction | Exception) -> str:
    """What differs between a worker and this process, in words."""
    if isinstance(said, Exception):
        return f"it cannot run this semifl ({type(said).__name__}: {said}); install the same version there"
    for name, ours in versions().items():
        theirs = said.versions.get(name, "none")
        if theirs != ours:
            return f"{name} is {theirs} there and {ours} here; install the same there"
    return ""

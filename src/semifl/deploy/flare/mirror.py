"""An operator's copy of a run: what the hub tells while it goes on, and its files when a job has ended."""

from __future__ import annotations

import fcntl
import shutil
import tomllib
from pathlib import Path
from typing import IO, Any, Protocol

from semifl.durable import replace_text
from semifl.errors import UserError
from semifl.records.directory import RunDirectory
from semifl.records.metrics import Metric, best_shown, metric_of
from semifl.records.record import RoundRecord, Summary

IDENTITY = "identity"  # the file that tells a run from another of the same name


class Watcher(Protocol):
    """Who is told how the run goes."""

    def said(self, message: str) -> None: ...

    def round(self, record: RoundRecord, best: float | None, metric: Metric, rounds: int) -> None: ...


class Mirror:
    """The directory `out`, kept such that a report can be made of it at any time."""

    def __init__(self, out: Path, watcher: Watcher) -> None:
        self.out = out
        self._watcher = watcher
        self._records: list[RoundRecord] = []
        self._claimed = False
        self._lock: IO[str] | None = None  # held until this process stops following

    @property
    def known(self) -> int:
        """The last round that was told."""
        return int(self._records[-1]["round"]) if self._records else 0

    def close(self) -> None:
        """Let another process follow."""
        if self._lock:
            self._lock.close()

    def hear(self, news: dict[str, Any]) -> None:
        """What a running job tells."""
        if "config" not in news:  # it is still preparing
            return
        try:
            self._claim(news["identity"])
            replace_text(self.out / "config.toml", news["config"])
            if self._add(news["rounds"], news["config"]):
                RunDirectory(self.out).write_rounds(self._records)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise UserError(f"the hub's news of this run cannot be read ({type(error).__name__})") from error

    def take(self, folder: Path, without: str) -> None:
        """The files of an ended job, all but one; what came after the last question is told now."""
        identity = folder / IDENTITY
        if not identity.exists():  # the run did not come far enough to be one
            return
        self._claim(identity.read_text(encoding="utf-8").strip())
        for path in folder.iterdir():
            if path.name != without and path.is_file():
                shutil.copy2(path, self.out / path.name)
        if (self.out / "config.toml").exists():
            self._add(RunDirectory(self.out).rounds(), (self.out / "config.toml").read_text(encoding="utf-8"))

    def result(self) -> Summary:
        result = RunDirectory(self.out).summary()
        assert result is not None
        return result

    def _claim(self, identity: str) -> None:
        """Never write over another run; of this one, what is here already need not be told again."""
        if self._claimed:
            return
        path = self.out / IDENTITY
        if (self.out / "config.toml").exists() and (not path.exists() or path.read_text().strip() != identity):
            raise UserError(f"{self.out} holds another run: choose another --out for the copy of this one")
        self.out.mkdir(parents=True, exist_ok=True)
        self._lock = (self.out / ".following").open("a")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"another 'semifl deploy run' follows this run into {self.out} already") from error
        replace_text(path, identity + "\n")
        self._records = RunDirectory(self.out).rounds()
        self._claimed = True

    def _add(self, records: list[RoundRecord], config: str) -> bool:
        """Tell of the rounds that are new."""
        new = [record for record in records if record["round"] > self.known]
        metric = metric_of(tomllib.loads(config))
        for record in new:
            self._records.append(record)
            best = best_shown(self._records, metric)
            self._watcher.round(record, best, metric, read_rounds(config))
        return bool(new)


def read_rounds(config: str) -> int:
    """How many rounds a run's file asks for."""
    return int(tomllib.loads(config).get("rounds", 0))

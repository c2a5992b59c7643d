"""An operator's copy of a run: what the hub tells while it goes on, and its files when a job has ended."""

from __future__ import annotations

import fcntl
import shutil
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Protocol

from semifl.configuration.code import code_in
from semifl.durable import replace_text
from semifl.errors import UserError
from semifl.parsing import from_json, from_toml
from semifl.records.directory import FILES, RunDirectory
from semifl.records.metrics import Metric, best_shown, metric_of
from semifl.records.record import RoundRecord, Summary
from semifl.regular import read_text
from semifl.running.context import BaselineProgress
from semifl.toml import Table
from semifl.trained.modelfile import model_table

IDENTITY = "identity"  # the file that tells a run from another of the same name
TAKEN = (*(name for name in FILES if "/" not in name), "model.safetensors", "model.md", IDENTITY)  # and nothing else


class Watcher(Protocol):
    """Who is told how the run goes."""

    def said(self, message: str) -> None: ...

    def baseline(self, progress: BaselineProgress) -> None: ...

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
        with _in_one_sentence("the hub's news of this run"):
            _refuse_code_in(from_toml(news["config"]))
            self._claim(news["identity"])
            replace_text(self.out / "config.toml", news["config"])
            if progress := baseline_in(news):
                self._watcher.baseline(progress)
            if self._add(news["rounds"], news["config"]):
                RunDirectory(self.out).write_rounds(self._records)

    def take(self, folder: Path) -> None:
        """The files of an ended job that a run has; what came after the last question is told now."""
        identity = folder / IDENTITY
        if not identity.exists():  # the run did not come far enough to be one
            return
        with _in_one_sentence("the run's files from the hub"):
            _refuse_code(folder)
            self._claim(read_text(identity).strip())
            for name in TAKEN:
                if (folder / name).is_file():
                    shutil.copy2(folder / name, self.out / name)
            if (self.out / "config.toml").exists():
                self._add(RunDirectory(self.out).rounds(), read_text(self.out / "config.toml"))

    def result(self) -> Summary:
        result = RunDirectory(self.out).summary()
        if result is None:
            raise UserError(f"the hub says that this run is finished, but {self.out} has no result.json from it")
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


def baseline_in(news: dict[str, Any]) -> BaselineProgress | None:
    """Return how far a job's labels-only models are, while it trains them."""
    told = news.get("baseline")
    return BaselineProgress(*map(int, told)) if told else None


def read_outcome(path: Path) -> dict[str, str]:
    """The hub's last word on a job: its state, and the reason."""
    with _in_one_sentence("the hub's last word on this run"):
        said = from_json(read_text(path))
        return {key: str(said[key]) for key in ("state", "reason")}


@contextmanager
def _in_one_sentence(what: str) -> Iterator[None]:
    """A hub may send anything."""
    try:
        yield
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise UserError(f"{what} cannot be read ({type(error).__name__})") from error


def _refuse_code(folder: Path) -> None:
    """Before a file of the hub lies where other verbs read it."""
    config, model = folder / "config.toml", RunDirectory(folder).model
    if config.is_file():
        _refuse_code_in(from_toml(read_text(config)))
    if model.is_file():
        _refuse_code_in(model_table(model))


def _refuse_code_in(table: Table) -> None:
    for key, name in code_in(table).items():
        raise UserError(
            f"the hub's files of this run name code, {key} = {name!r}: they are not taken, for a federation runs what "
            "is built into semifl"
        )


def read_rounds(config: str) -> int:
    """How many rounds a run's file asks for."""
    return int(tomllib.loads(config).get("rounds", 0))

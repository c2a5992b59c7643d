"""The run directory: what is written while a run goes on, and how it is read again."""

from __future__ import annotations

import fcntl
import json
import math
import os
import platform
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

from semifl.durable import replace_text
from semifl.errors import UserError
from semifl.experiments import toml
from semifl.experiments.config import Config, decode, read
from semifl.experiments.soundness import is_number, is_result, is_round
from semifl.federation.signals import recorded
from semifl.federation.tally import Tally
from semifl.federation.world import Round
from semifl.parsing import from_json
from semifl.regular import add_text, read_text

Record = dict[str, Any]
FORMAT = 2  # of run directories; raised when a later version could not read an earlier one's


class RunDirectory:
    """The files of one run, by the names of the design."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoint"

    @property
    def model(self) -> Path:
        return self.path / "model.safetensors"

    def create(self, config: Config) -> None:
        if (self.path / "config.toml").exists():
            raise UserError(
                f"{self.path} already holds a run: continue it with 'semifl resume {self.path}' or choose another --out"
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            replace_text(self.path / "environment.json", json.dumps(environment(), indent=1) + "\n")
            self.write_config(config)
        except OSError as error:
            raise UserError(f"cannot write the run directory {self.path}: {error.strerror}") from error

    def write_config(self, config: Config) -> None:
        replace_text(self.path / "config.toml", toml.dumps(config.table()))

    def config(self) -> Config:
        if not (self.path / "config.toml").exists():
            raise UserError(f"{self.path} is not a run directory: it has no config.toml")
        if not any((self.path / name).exists() for name in ("environment.json", "rounds.jsonl", "checkpoint")):
            raise UserError(
                f"{self.path} is a project and not a run: start one with 'semifl run {self.path}/config.toml'"
            )
        path = self.path / "config.toml"
        table = read(path)
        if not {"data", "model", "method"} <= table.keys():
            raise UserError(f"{path} is damaged: a run's configuration has the sections data, model and method")
        written = self.environment().get("format", FORMAT)
        if written != FORMAT:
            raise UserError(
                f"{self.path} has format {written}, this version reads {FORMAT}: use the version that wrote it"
            )
        try:
            return decode(table)
        except UserError as error:
            raise UserError(f"{path}: {error}") from error

    def environment(self) -> Record:
        """Where the run was started, or nothing if that is lost."""
        return _read_object(self.path / "environment.json")

    def rounds(self) -> list[Record]:
        """The finished rounds, as far as the file is sound; the last line may have been cut off by a crash."""
        return _read_lines(self.path / "rounds.jsonl")

    def rounds_until(self, last: int) -> list[Record]:
        """All rounds that the checkpoint of round `last` knows, each with all that is needed to go on."""
        sound = takewhile(is_round, self.rounds())
        kept = [record for record in sound if record["round"] <= last]
        if len({"validation_accuracy" in record for record in kept}) > 1:  # in every round or in none
            kept = []
        if [record["round"] for record in kept] != list(range(1, last + 1)):
            raise UserError(
                f"{self.path / 'rounds.jsonl'} is damaged: the checkpoint is of round {last}, "
                f"but only {len(kept)} rounds before it can be read"
            )
        return kept

    def keep_rounds(self, kept: list[Record]) -> None:
        """Drop lines of rounds that the checkpoint does not know: they will be run, and written, again."""
        replace_text(self.path / "rounds.jsonl", "".join(json.dumps(record) + "\n" for record in kept))

    def add_round(self, record: Record) -> None:
        add_text(self.path / "rounds.jsonl", json.dumps(record) + "\n")

    def add_event(self, kind: str, **facts: Any) -> None:
        event = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "event": kind, **facts}
        add_text(self.path / "events.jsonl", json.dumps(event) + "\n")

    def result(self) -> Record | None:
        """The outcome, or None if there is none yet or a crash left half of it."""
        result = _read_object(self.path / "result.json")
        return result if is_number(result.get("accuracy")) and is_number(result.get("rounds")) else None

    def whole_result(self) -> Record | None:
        """The same, if it has all that is told of a finished run."""
        result = self.result()
        return result if result and is_result(result) else None

    def forget_result(self) -> None:
        (self.path / "result.json").unlink(missing_ok=True)

    def write_result(self, result: Record) -> None:
        replace_text(self.path / "result.json", json.dumps(result, indent=1) + "\n")

    def write_facts(self, name: str, facts: Record) -> None:
        """A file beside the result that the report reads; on one line, for it can be long."""
        replace_text(self.path / name, json.dumps(facts) + "\n")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Refuse a second process that would write here."""
        try:
            handle = os.open(self.path / ".lock", os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise UserError(f"cannot write the run directory {self.path}: {error.strerror}") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(handle)
            raise UserError(f"{self.path} is in use by another run") from error
        try:
            yield
        finally:
            os.close(handle)


def round_record(t: Round, tally: Tally, update_norm: float) -> Record:
    """One line of rounds.jsonl. All but `seconds` is part of the promise that the same seed gives the same bits."""
    replies = tally.replies
    outcomes = {
        name: [reply.client for reply in replies if reply.outcome == name]
        for name in ("abstained", "failed", "late", "rejected")
    }
    score, validation = tally.score, tally.validation
    return {
        "round": t.index,
        "lr": tally.lr if tally.lr is not None else next((r.facts["lr"] for r in replies if "lr" in r.facts), None),
        "accuracy": score.accuracy if score else None,
        "balanced_accuracy": score.balanced_accuracy if score else None,
        "loss": _finite(score.loss) if score else None,
        **({"validation_accuracy": validation.accuracy} if validation else {}),
        "server_loss": _finite(tally.server_terms.get("loss")),
        "client_loss": _finite(_mean_term(tally, "loss")),
        "cohort": [reply.client for reply in replies],
        **outcomes,
        **recorded([reply.facts for reply in replies]),
        "agreement": _mean_term(tally, "agreement"),
        "terms": _terms(tally),
        "update_norm": _finite(update_norm),
        "alerts": [],
        "bytes_up": tally.bytes_up,
        "bytes_down": tally.bytes_down,
        "seconds": {name: round(seconds, 4) for name, seconds in tally.seconds.items()},
    }


def _terms(tally: Tally) -> dict[str, dict[str, float | None]]:
    """Every named loss term: the server's, and the mean over the clients by their number of examples."""
    names = {name: None for reply in tally.replies if reply.update for name in reply.update.terms}
    return {
        "server": {name: _finite(value) for name, value in tally.server_terms.items()},
        "clients": {name: _finite(_mean_term(tally, name)) for name in names},
    }


def _mean_term(tally: Tally, name: str) -> float | None:
    """The mean over clients of something their training measured, by number of examples."""
    updates = [reply.update for reply in tally.replies if reply.update and name in reply.update.terms]
    pairs = [(update.terms[name], update.examples) for update in updates]
    return _ratio(sum(value * examples for value, examples in pairs), sum(examples for _, examples in pairs))


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def environment() -> Record:
    """Where and how a run was started, so that a number can be traced."""
    import numpy
    import torch

    from semifl import __version__

    return {
        "format": FORMAT,
        "semifl": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def _read_object(path: Path) -> Record:
    """A JSON object; nothing if there is none, or something else."""
    try:
        content = from_json(read_text(path))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _read_lines(path: Path) -> list[Record]:
    try:
        lines = read_text(path, errors="replace").splitlines()
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    records = []
    for line in lines:
        try:
            record = from_json(line)
        except ValueError:
            break
        if not isinstance(record, dict) or type(record.get("round")) is not int:
            break
        records.append(record)
    return records

"""The run directory: its files, how they are written while a run goes on, and how they are read again. No torch."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

from semifl import toml
from semifl.durable import replace_text
from semifl.errors import UserError
from semifl.parsing import from_json, from_toml
from semifl.records.record import JSON, RoundRecord, Summary, is_round, is_summary, number
from semifl.regular import add_text, read_text, why
from semifl.toml import Table
from semifl.words import resume_command

FORMAT = 4  # of run directories; raised when a later version could not read an earlier one's
MOST_ROUNDS = 10**9  # what lies beyond is damage
# What tells how a run went, and so what a report is made of.
FILES = (
    *("config.toml", "environment.json", "rounds.jsonl", "events.jsonl"),
    *("result.json", "world.json", "labels_only.json", "confusion.json", "gallery/gallery.json"),
)


class RunDirectory:
    """The files of one run. A reader that is given `problems` adds a sentence to it for what it cannot read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoint"

    @property
    def model(self) -> Path:
        return self.path / "model.safetensors"

    @property
    def best_of_rounds(self) -> Path:
        """Where that model lies while `model` is the final one."""
        return self.checkpoints / "best.safetensors"

    # Written while a run goes on

    def create(self, config: Table, environment: JSON) -> None:
        if self.is_project():
            raise UserError(
                f"{self.path} is a project, and a run needs a directory of its own: "
                f"choose another --out, such as {self.path / 'run'}"
            )
        if (self.path / "config.toml").exists():
            raise UserError(
                f"{self.path} already holds a run: continue it with `{resume_command(self.path)}` "
                "or choose another --out"
            )
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            replace_text(self.path / "environment.json", json.dumps({"format": FORMAT, **environment}, indent=1) + "\n")
            self.write_config(config)
        except OSError as error:
            raise UserError(f"cannot write the run directory {self.path}: {error.strerror}") from error

    def write_config(self, config: Table) -> None:
        replace_text(self.path / "config.toml", toml.dumps(config))

    def write_rounds(self, records: Sequence[RoundRecord]) -> None:
        """These and no others: rounds that no checkpoint knows will be run, and written, again."""
        replace_text(self.path / "rounds.jsonl", "".join(json.dumps(record) + "\n" for record in records))

    def add_round(self, record: RoundRecord) -> None:
        add_text(self.path / "rounds.jsonl", json.dumps(record) + "\n")

    def add_event(self, kind: str, **facts: Any) -> None:
        event = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "event": kind, **facts}
        add_text(self.path / "events.jsonl", json.dumps(event) + "\n")

    def add_failure(self, what: str, trace: str) -> None:
        """Append a traceback to run.log, which is for whoever wrote the code that failed."""
        add_text(self.path / "run.log", f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {what}\n{trace.rstrip()}\n\n")

    def write_summary(self, summary: Summary) -> None:
        replace_text(self.path / "result.json", json.dumps(summary, indent=1) + "\n")

    def forget_summary(self) -> None:
        (self.path / "result.json").unlink(missing_ok=True)

    def set_aside(self, names: Iterable[str], rounds: int) -> list[Path]:
        """Rename those of these files that exist so that they say of how many rounds they are."""
        aside = []
        for file in (self.path / name for name in names):
            if file.is_file():
                aside.append(file.rename(file.with_name(f"{file.stem}-of-{rounds}-rounds{file.suffix}")))
        return aside

    def write_facts(self, name: str, facts: JSON) -> None:
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

    # Read again, by whoever goes on or tells of it

    def refuse_unreadable(self) -> None:
        """Something that is no run, or a run of another format, is told by one sentence."""
        if not (self.path / "config.toml").exists():
            raise UserError(f"{self.path} is not a run directory: it has no config.toml")
        if self.is_project():
            raise UserError(
                f"{self.path} is a project and not a run: start one with 'semifl run {self.path}/config.toml'"
            )
        written = self.environment().get("format", FORMAT)
        if written != FORMAT:
            raise UserError(
                f"{self.path} has format {written}, this version reads {FORMAT}: use the version that wrote it"
            )

    def is_project(self) -> bool:
        """Whether this is what `semifl init` made, or a person: a configuration of which no run was begun."""
        begun = ("environment.json", "rounds.jsonl", "result.json", "checkpoint")
        return (self.path / "config.toml").exists() and not any((self.path / name).exists() for name in begun)

    def config(self, problems: list[str] | None = None) -> Table:
        """As it stands in the file; nothing if it is damaged."""
        try:
            config = from_toml(read_text(self.path / "config.toml"))
        except (OSError, ValueError) as error:
            _note(problems, f"config.toml cannot be read: {why(error)}.")
            return {}
        if isinstance(config.get("method"), dict):
            return config
        _note(problems, "config.toml is damaged: it has no section method.")
        return {}

    def environment(self, problems: list[str] | None = None) -> JSON:
        """Where the run was started, or nothing if that is lost."""
        return self.facts("environment.json", problems)

    def code_versions(self) -> list[dict[str, str]]:
        """Return the digests of all code that made the run, by name: as it began, and each time it was resumed."""
        resumed = (event.get("environment") for event in self.lines("events.jsonl", []))
        return [code_versions_of(each) for each in (self.environment(), *resumed) if isinstance(each, dict)]

    def rounds(self, problems: list[str] | None = None) -> list[Any]:
        """The finished rounds as far as they can be read and count upwards; the last may have been cut off."""
        rounds: list[Any] = []
        for record in self.lines("rounds.jsonl", problems):
            index = record.get("round")
            if type(index) is not int or not (rounds[-1]["round"] if rounds else 0) < index < MOST_ROUNDS:
                _note(problems, f"rounds.jsonl is damaged after its line {len(rounds)}; what comes later is not shown.")
                break
            rounds.append(record)
        return rounds

    def rounds_until(self, last: int) -> list[RoundRecord]:
        """All rounds that the checkpoint of round `last` knows, each with all that is needed to go on."""
        kept = [record for record in takewhile(is_round, self.rounds()) if record["round"] <= last]
        if len({"validation_accuracy" in record for record in kept}) > 1:  # in every round or in none
            kept = []
        if [record["round"] for record in kept] != list(range(1, last + 1)):
            raise UserError(
                f"{self.path / 'rounds.jsonl'} is damaged: the checkpoint is of round {last}, "
                f"but only {len(kept)} rounds before it can be read"
            )
        return kept

    def summary(self) -> Summary | None:
        """The outcome of a finished run, or None if there is none yet or a crash left half of it."""
        found = self.facts("result.json")
        return found if is_summary(found) else None

    def outcome(self, problems: list[str] | None = None) -> JSON:
        """As much of the outcome as there is, if it has an accuracy at least."""
        found = self.facts("result.json", problems)
        return found if number(found.get("accuracy")) is not None else {}

    def facts(self, name: str, problems: list[str] | None = None) -> JSON:
        """A file that holds one JSON object; nothing if there is no such file yet, or if it is damaged."""
        path = self.path / name
        if not path.exists():
            return {}
        try:
            content = from_json(read_text(path))
        except (OSError, ValueError) as error:
            _note(problems, f"{path.name} cannot be read: {why(error)}.")
            return {}
        if isinstance(content, dict):
            return content
        _note(problems, f"{path.name} is damaged: it holds no JSON object.")
        return {}

    def lines(self, name: str, problems: list[str] | None = None) -> list[JSON]:
        """A file of one JSON object per line, up to the first that is none: the last may have been cut off."""
        path = self.path / name
        if not path.exists():
            return []
        try:
            lines = read_text(path, errors="replace").splitlines()
        except OSError as error:
            if problems is None:
                raise UserError(f"cannot read {path}: {error.strerror}") from error
            _note(problems, f"{path.name} cannot be read: {why(error)}.")
            return []
        records: list[JSON] = []
        for line in lines:
            record = _object(line)
            if record is None:
                _note(problems, f"{path.name} is cut off or damaged in line {len(records) + 1} of {len(lines)}.")
                break
            records.append(record)
        return records


def code_versions_of(environment: JSON) -> dict[str, str]:
    """Return the digest of semifl and of each file of a person's own, by what the configuration calls it."""
    own = environment.get("own_code")
    entries = own.items() if isinstance(own, dict) else ()
    files = {name: code.get("digest") for name, code in entries if isinstance(code, dict)}
    return {name: str(digest) for name, digest in {"semifl": environment.get("digest"), **files}.items()}


def versions_that_differ(versions: Sequence[dict[str, str]]) -> list[str]:
    """Return the names of the code that is not the same everywhere."""
    names = dict.fromkeys(name for each in versions for name in each)
    return [name for name in names if len({each.get(name) for each in versions}) > 1]


def _object(line: str) -> JSON | None:
    try:
        record = from_json(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


def _note(problems: list[str] | None, sentence: str) -> None:
    if problems is not None:
        problems.append(sentence)

"""A checkpoint and the other files of its run: going on is exact only if each is as it was when the round ended."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from semifl import machine
from semifl.configuration.config import VIEWS, Config
from semifl.durable import copy_file
from semifl.errors import UserError
from semifl.federation.memory import ClientMemory, Kept
from semifl.learning.tensorfile import read_metadata
from semifl.parsing import from_json
from semifl.records.directory import RunDirectory
from semifl.records.record import RoundRecord
from semifl.regular import read_bytes, why
from semifl.toml import dotted

# What a person may change between two parts of a run: how long it goes on, what it is warned of, where files lie.
FREE = ("rounds", "test_every", "labels_only", "max_failures", "data.root", "model.weights", "model.source")
FREE_SECTIONS = ("stop.", "health.")


class Bound(NamedTuple):
    """What a checkpoint knows of the files beside it."""

    config: str  # the values of config.toml that decide bits, in JSON
    lines: str = ""  # digest of the lines of rounds.jsonl
    model: str = ""  # digest of model.safetensors, if a round has kept one
    memory: Kept = Kept.nothing()

    def after(self, record: RoundRecord, memory: Kept, model: Path | None) -> Bound:
        """The same one round later; `model` if the round has kept one."""
        lines = _chained(self.lines, record)
        return self._replace(lines=lines, memory=memory, **({"model": _digest_of(model)} if model else {}))


def bound_to(config: Config, **more: Any) -> Bound:
    """Before the first round; `more` are further values that must stay the same."""
    values = {**dict(dotted(config.table())), **{f"data.{view}": getattr(config.views, view) for view in VIEWS}}
    deciding = {key: value for key, value in values.items() if key not in FREE and not key.startswith(FREE_SECTIONS)}
    return Bound(json.dumps({**deciding, **more}))


def refuse_another_config(found: Bound, now: Bound, checkpoint: Path, config: Path) -> None:
    """Keys that only one of them has are those of another version of semifl."""
    then, today = json.loads(found.config), json.loads(now.config)
    for key in then.keys() & today.keys():
        if then[key] != today[key] and json.dumps(then[key]) != json.dumps(today[key]):  # NaN is not equal to itself
            raise UserError(
                f"{checkpoint} is not of the run in {config}: {key} was {then[key]!r} and is now {today[key]!r}"
            )


def refuse_other_files(
    found: Bound, directory: RunDirectory, records: Sequence[RoundRecord], memory: ClientMemory
) -> None:
    """`records` are those up to the checkpoint."""
    if _chained_all(records) != found.lines:
        raise UserError(f"{directory.path / 'rounds.jsonl'} is not as this run left it: one of its rounds was changed")
    memory.verify(found.memory, len(records))
    aside = directory.best_of_rounds
    if found.model and not (aside.is_file() and _digest_of(aside) == found.model):  # else restore_best puts it back
        _refuse_other_model(directory.model, found.model, len(records))


def restore_best(found: Bound, directory: RunDirectory) -> None:
    """A finished run's file holds its final model; going on, the run has the best of its rounds there again."""
    aside = directory.best_of_rounds
    if found.model and aside.is_file() and _digest_of(aside) == found.model != _digest_of(directory.model):
        copy_file(aside, directory.model)


def _refuse_other_model(path: Path, noted: str, last: int) -> None:
    try:
        # A better model is written before its round's checkpoint, of which the last two count: if the run was
        # interrupted in between, or the last one is damaged, that round is run, and its model written, again.
        if _digest_of(path) == noted or last < from_json(read_metadata(path)["semifl"])["round"] <= last + 2:
            return
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}, the best model so far, cannot be read: {why(error)}") from error
    raise UserError(f"{path} is not the model that this run has kept")


def _chained_all(records: Sequence[RoundRecord]) -> str:
    digest = ""
    for record in records:
        digest = _chained(digest, record)
    return digest


def _chained(before: str, record: RoundRecord) -> str:
    """The digest of all lines, from that of the earlier ones: a round costs the same, however many there were."""
    return hashlib.sha256((before + json.dumps(record)).encode()).hexdigest()


def _digest_of(path: Path) -> str:
    return hashlib.sha256(read_bytes(path, machine.memory())).hexdigest()

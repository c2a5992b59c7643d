"""Checkpoints: the State after a round in one file, atomic, with a checksum; the last two are kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import save_file
from torch import Tensor

from semifl.durable import replace_file
from semifl.errors import UserError
from semifl.federation.memory import Kept
from semifl.learning import trees
from semifl.learning.batchnorm import Moments
from semifl.learning.server_optimizer import Past
from semifl.learning.tensorfile import read_tensors
from semifl.learning.weights import Snapshot, digest
from semifl.parsing import from_json
from semifl.regular import why
from semifl.running.binding import Bound

FORMAT = 2
KEPT = 2


class Saved(NamedTuple):
    round: int
    state: Any
    bound: Bound  # to the files beside it
    path: Path


class Checkpoints:
    """The checkpoint files of one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, round: int, state: Any, bound: Bound) -> None:
        tensors: list[Tensor] = []
        skeleton = json.dumps(trees.flatten((state, bound), tensors))
        # Clones, because tensors that are views of one vector must be separate in the file.
        named = {str(number): tensor.detach().cpu().clone() for number, tensor in enumerate(tensors)}
        metadata = {"format": str(FORMAT), "round": str(round), "skeleton": skeleton}
        metadata["checksum"] = _checksum(metadata, named)
        replace_file(self._path(round), lambda part: save_file(named, part, metadata))
        for old in self.rounds()[:-KEPT]:
            self._path(old).unlink(missing_ok=True)

    def rounds(self) -> list[int]:
        """Of the files that bear a name of ours."""
        found = (path.stem for path in self.folder.glob("[0-9]*.safetensors"))
        return sorted(int(stem) for stem in found if stem.isascii() and stem.isdecimal() and stem == f"{int(stem):06d}")

    def load(self, named: Sequence[type], warn: Any) -> Saved | None:
        """The newest sound checkpoint; a damaged one is passed over with a warning.

        `named` are the classes of named tuples that a State may hold.
        """
        problems = []
        for round in reversed(self.rounds()):
            try:
                return self._read(round, named)
            except trees.AnotherForm as error:  # sound, but of another version: an older one would be no better
                raise UserError(
                    f"{self._path(round)} was written by another version of the method: {error}; "
                    "use that version to go on"
                ) from error
            except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
                problems.append(f"{self._path(round).name} is damaged ({why(error)})")
                warn(f"checkpoint {problems[-1]}: falling back to the one before")
        if problems:
            raise UserError(f"no checkpoint in {self.folder} can be read: {'; '.join(problems)}")
        return None

    def _read(self, round: int, named: Sequence[type]) -> Saved:
        path = self._path(round)
        metadata, unsorted = read_tensors(path)
        tensors = {name: unsorted[name] for name in sorted(unsorted, key=int)}
        checksum = metadata.pop("checksum")
        if checksum != _checksum(metadata, tensors):
            raise ValueError("its checksum does not match")
        if metadata["format"] != str(FORMAT):
            raise UserError(
                f"{path} has format {metadata['format']}, this version reads {FORMAT}: use the version that wrote it"
            )
        if metadata["round"] != str(round):
            raise ValueError(f"it is the checkpoint of round {metadata['round']}")
        known = {each.__name__: each for each in (*named, Bound, Kept, Moments, Past, Snapshot)}
        state, bound = trees.rebuild(from_json(metadata["skeleton"]), list(tensors.values()), known)
        return Saved(round, state, bound, path)

    def _path(self, round: int) -> Path:
        return self.folder / f"{round:06d}.safetensors"


def _checksum(metadata: dict[str, str], tensors: dict[str, Tensor]) -> str:
    """Of everything that is read again: the metadata, and the tensors' names, shapes, types and bits."""
    content = json.dumps([sorted(metadata.items()), digest(tensors)])
    return hashlib.sha256(content.encode()).hexdigest()

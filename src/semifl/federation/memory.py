"""What clients keep between rounds: a file per client and round, so that a replayed round starts from the right one.

Only the cohort's files are written in a round. A file becomes part of the run when the round's checkpoint is written,
with the file's digest in it; files of later rounds are leftovers of an interrupted round and are ignored, then
overwritten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from semifl.durable import replace_file
from semifl.errors import UserError
from semifl.learning.tensorfile import TensorFile, read_metadata, read_tensors
from semifl.learning.training import Memory
from semifl.learning.weights import digest
from semifl.regular import why


class Kept(NamedTuple):
    """Which file holds each client's memory: by client, the round it is of (0: there is none) and its digest."""

    rounds: Tensor
    digests: Tensor  # of 64 bits each

    @classmethod
    def nothing(cls) -> Kept:
        return cls(torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64))

    def with_round(self, round: int, digests: dict[int, int]) -> Kept:
        """The same with other files for some clients; a copy, for the earlier table belongs to its checkpoint."""
        if not digests:
            return self
        missing = max(max(digests) + 1 - len(self.rounds), 0)
        after = Kept(*(functional.pad(each, (0, missing)).clone() for each in self))
        clients = torch.tensor(list(digests))
        after.rounds[clients] = round
        after.digests[clients] = torch.tensor(list(digests.values()))
        return after


class ClientMemory:
    """The files below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, client: int, before: int) -> Memory | None:
        """What the client kept from its last participation before round `before`."""
        rounds = [round for round in self._rounds(client) if round < before]
        return self._load(client, max(rounds)).tensors if rounds else None

    def write(self, client: int, round: int, memory: Memory) -> None:
        tensors = {name: memory[name].contiguous() for name in sorted(memory)}
        replace_file(self._path(client, round), lambda part: save_file(tensors, part, {"digest": digest(tensors)}))
        # The checkpoints of the two rounds before this one can still be resumed from; older files serve nobody, and
        # later ones are leftovers of rounds that are now played again.
        needed = max((earlier for earlier in self._rounds(client) if earlier <= round - 2), default=0)
        for other in self._rounds(client):
            if not needed <= other <= round:
                self._remove(client, other)

    def forget_after(self, round: int) -> None:
        """Remove what rounds after `round` left behind."""
        for client, written in self._files():
            if written > round:
                self._remove(client, written)

    def note(self, kept: Kept, clients: Iterable[int], round: int) -> Kept:
        """The table after a round in which these clients took part; nobody else's file is looked at."""
        wrote = [client for client in clients if self._path(client, round).exists()]
        return kept.with_round(round, {client: self._noted_digest(client, round) for client in wrote})

    def verify(self, kept: Kept, last: int) -> None:
        """Every file must be the one that was noted, up to round `last`, and there must be no other."""
        for client in kept.rounds.nonzero().flatten().tolist():
            round, path = int(kept.rounds[client]), self._path(client, int(kept.rounds[client]))
            if not path.exists():
                raise UserError(f"the memory of client {client} in {path} is missing, so the run cannot go on from it")
            if _as_number(self._load(client, round).metadata["digest"]) != int(kept.digests[client]):
                raise UserError(f"the memory of client {client} in {path} is not the one that it kept in this run")
        for client, round in self._files():
            noted = int(kept.rounds[client]) if client < len(kept.rounds) else 0
            if noted < round <= last:
                path = self._path(client, round)
                raise UserError(f"the memory of client {client} in {path} is not of this run: it kept nothing then")

    def _load(self, client: int, round: int) -> TensorFile:
        path = self._path(client, round)
        try:
            file = read_tensors(path)
        except (OSError, ValueError) as error:
            raise UserError(f"the memory of client {client} in {path} is damaged: {why(error)}") from error
        if file.metadata.get("digest") != digest(file.tensors):
            raise UserError(f"the memory of client {client} in {path} is damaged: its checksum does not match")
        return file

    def _noted_digest(self, client: int, round: int) -> int:
        """As the file itself says; reading its tensors again would take longer than the round of many a client."""
        path = self._path(client, round)
        try:
            return _as_number(read_metadata(path)["digest"])
        except (OSError, ValueError, KeyError) as error:
            raise UserError(f"the memory of client {client} in {path} is damaged: {why(error)}") from error

    def _remove(self, client: int, round: int) -> None:
        path = self._path(client, round)
        if path.is_dir():
            raise UserError(f"the memory of client {client} in {path} is damaged: it is a folder and not a file")
        path.unlink(missing_ok=True)

    def _path(self, client: int, round: int) -> Path:
        return self.folder / str(client) / f"{round}.safetensors"

    def _rounds(self, client: int) -> list[int]:
        stems = [path.stem for path in (self.folder / str(client)).glob("*.safetensors")]
        return [int(stem) for stem in stems if _is_number(stem)]

    def _files(self) -> Iterator[tuple[int, int]]:
        """The client and the round of every file."""
        for folder in self.folder.glob("*"):
            if _is_number(folder.name):
                yield from ((int(folder.name), round) for round in self._rounds(int(folder.name)))


def _is_number(name: str) -> bool:
    """Whether a file of this name can be ours."""
    return name.isascii() and name.isdecimal() and str(int(name)) == name


def _as_number(hexadecimal: str) -> int:
    """Sixteen digits as a number that fits into a tensor, which is signed."""
    number = int(hexadecimal, 16)
    return number - (number >> 63 << 64)

"""What clients keep between rounds: a file per client and round, so that a replayed round starts from the right one.

Only the cohort's files are written in a round. A file becomes part of the run when the round's checkpoint is written;
files of later rounds are leftovers of an interrupted round and are ignored, then overwritten.
"""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file, save_file

from semifl.durable import replace_file
from semifl.errors import UserError
from semifl.learning.training import Memory


class ClientMemory:
    """The files below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def read(self, client: int, before: int) -> Memory | None:
        """What the client kept from its last participation before round `before`."""
        rounds = [round for round in self._rounds(client) if round < before]
        if not rounds:
            return None
        path = self._path(client, max(rounds))
        try:
            return load_file(path)
        except Exception as error:  # safetensors raises its own, undocumented types
            raise UserError(f"the memory of client {client} in {path} is damaged: {error}") from error

    def write(self, client: int, round: int, memory: Memory) -> None:
        tensors = {name: tensor.contiguous() for name, tensor in memory.items()}
        replace_file(self._path(client, round), lambda part: save_file(tensors, part))
        # The checkpoints of the two rounds before this one can still be resumed from; older files serve nobody.
        needed = max((earlier for earlier in self._rounds(client) if earlier <= round - 2), default=0)
        for earlier in self._rounds(client):
            if earlier < needed:
                self._path(client, earlier).unlink(missing_ok=True)

    def forget_after(self, round: int) -> None:
        """Remove what rounds after `round` left behind."""
        if self.folder.is_dir():
            for path in self.folder.glob("*/*.safetensors"):
                if int(path.stem) > round:
                    path.unlink(missing_ok=True)

    def _path(self, client: int, round: int) -> Path:
        return self.folder / str(client) / f"{round}.safetensors"

    def _rounds(self, client: int) -> list[int]:
        return [int(path.stem) for path in (self.folder / str(client)).glob("*.safetensors")]

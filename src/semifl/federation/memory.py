"""What clients keep between rounds: a file per client and round, so that a replayed round starts from the right one.

Only the cohort's files are written in a round. A file becomes part of the run when the round's checkpoint is written;
files of later rounds are leftovers of an interrupted round and are ignored, then overwritten.
"""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from semifl.durable import replace_file
from semifl.errors import UserError
from semifl.learning.training import Memory
from semifl.learning.weights import digest


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
            with safe_open(path, "pt") as file:
                memory = {name: file.get_tensor(name) for name in sorted(file.keys())}
                sound = (file.metadata() or {}).get("digest") == digest(memory)
        except (OSError, SafetensorError) as error:
            raise UserError(f"the memory of client {client} in {path} is damaged: {error}") from error
        if not sound:
            raise UserError(f"the memory of client {client} in {path} is damaged: its checksum does not match")
        return memory

    def write(self, client: int, round: int, memory: Memory) -> None:
        tensors = {name: memory[name].contiguous() for name in sorted(memory)}
        replace_file(self._path(client, round), lambda part: save_file(tensors, part, {"digest": digest(tensors)}))
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

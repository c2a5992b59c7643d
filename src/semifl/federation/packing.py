"""Messages taken apart: a small head, and the bytes of every tensor beside it.

Any nest of tuples, dicts and tensors can be a message. The head is a pickle, which is fine between processes of one
owner and nowhere else: both ends are one program; what comes from other owners' machines goes through `deploy.wire`.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Packed(NamedTuple):
    """A message on its way to another machine."""

    head: bytes
    parts: list[NDArray[np.uint8]]

    @property
    def size(self) -> int:
        return len(self.head) + sum(part.nbytes for part in self.parts)


def pack(thing: Any) -> Packed:
    """The parts are the tensors' own memory, not a copy."""
    head, views = take_apart(thing)
    return Packed(head, [np.frombuffer(view, dtype=np.uint8) for view in views])


def unpack(packed: Packed) -> Any:
    """The reader's own: what a network has received may be read-only."""
    return put_together(packed.head, [np.array(part) for part in packed.parts])


def take_apart(thing: Any) -> tuple[bytes, list[memoryview]]:
    stream, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
    _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(thing)
    return stream.getvalue(), [buffer.raw() for buffer in buffers]


def put_together(head: bytes, parts: Sequence[Any]) -> Any:
    return pickle.loads(head, buffers=parts)


class _Pickler(pickle.Pickler):
    """Takes tensors' bytes out of band."""

    def reducer_override(self, thing: Any) -> Any:
        if not isinstance(thing, Tensor):
            return NotImplemented
        flat: Any = thing.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy()
        return _tensor, (pickle.PickleBuffer(flat), thing.dtype, tuple(thing.shape))


def _tensor(buffer: Any, dtype: torch.dtype, shape: tuple[int, ...]) -> Tensor:
    flat = torch.from_numpy(np.frombuffer(buffer, dtype=np.uint8)) if len(buffer) else torch.empty(0, dtype=torch.uint8)
    return flat.view(dtype).view(shape)

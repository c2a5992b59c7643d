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

ALIGN = 64  # tensors start at cache lines


class Packed(NamedTuple):
    """A message on its way to another machine: one body, because an engine has its trouble with each piece it sends."""

    head: bytes
    spans: list[tuple[int, int]]
    body: NDArray[np.uint8]

    @property
    def size(self) -> int:
        return len(self.head) + self.body.nbytes


def pack(thing: Any) -> Packed:
    head, views = take_apart(thing)
    spans, end = layout(views)
    body = np.empty(end, dtype=np.uint8)
    fill(body, spans, views)
    return Packed(head, spans, body)


def unpack(packed: Packed) -> Any:
    """Without a copy, unless it was received into memory that may only be read."""
    body = packed.body if packed.body.flags.writeable else np.array(packed.body)
    return put_together(packed.head, [body[start : start + length] for start, length in packed.spans])


def layout(views: Sequence[memoryview]) -> tuple[list[tuple[int, int]], int]:
    """Where each tensor's bytes lie, start and length, and where all of them end."""
    spans, end = [], 0
    for view in views:
        spans.append((end, view.nbytes))
        end += -(-view.nbytes // ALIGN) * ALIGN
    return spans, end


def fill(body: NDArray[np.uint8], spans: Sequence[tuple[int, int]], views: Sequence[memoryview]) -> None:
    for (start, length), view in zip(spans, views, strict=True):
        body[start : start + length] = np.frombuffer(view, dtype=np.uint8)


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

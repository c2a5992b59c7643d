"""Messages between this process and its own workers: tensors lie in shared memory, only a small head is sent.

Any nest of tuples, dicts and tensors can be a message. The head is a pickle, which is fine here and only here: both
ends are one program on one machine; nothing from outside ever reaches these pipes.
"""

from __future__ import annotations

import io
import pickle
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

ALIGN = 64  # tensors start at cache lines


class Handle(NamedTuple):
    """What travels through the pipe: structure, where each tensor's bytes lie, and the store if the reader lacks it."""

    head: bytes
    spans: list[tuple[int, int]]
    store: Tensor | None


class SharedMessages:
    """A growing piece of shared memory with one writer and one or more readers."""

    def __init__(self) -> None:
        self._store = torch.empty(0, dtype=torch.uint8)

    def put(self, thing: Any, always_send_store: bool = False) -> Handle:
        """Copy a message in; it stays until the next `put`."""
        stream, buffers = io.BytesIO(), list[pickle.PickleBuffer]()
        _Pickler(stream, protocol=5, buffer_callback=buffers.append).dump(thing)
        views = [buffer.raw() for buffer in buffers]
        spans, end = [], 0
        for view in views:
            spans.append((end, view.nbytes))
            end += -(-view.nbytes // ALIGN) * ALIGN
        grown = end > len(self._store)
        if grown:
            self._store = torch.empty(end, dtype=torch.uint8).share_memory_()  # type: ignore[no-untyped-call]
        memory = self._store.numpy()
        for (start, length), view in zip(spans, views, strict=True):
            memory[start : start + length] = np.frombuffer(view, dtype=np.uint8)
        return Handle(stream.getvalue(), spans, self._store if grown or always_send_store else None)

    def get(self, handle: Handle, copy: bool) -> Any:
        """Read a message: with `copy` it is the reader's own, without it is valid until the writer's next `put`."""
        if handle.store is not None:
            self._store = handle.store
        end = sum(handle.spans[-1]) if handle.spans else 0
        memory = self._store.numpy()[:end]
        memory = memory.copy() if copy else memory
        return pickle.loads(handle.head, buffers=[memory[start : start + length] for start, length in handle.spans])


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

"""Messages between this process and its own workers: tensors lie in shared memory, only a small head is sent.

Nothing from outside ever reaches these pipes, so a head may be a pickle (`packing`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from semifl.federation.packing import fill, layout, put_together, take_apart


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
        head, views = take_apart(thing)
        spans, end = layout(views)
        grown = end > len(self._store)
        if grown:
            self._store = torch.empty(end, dtype=torch.uint8).share_memory_()  # type: ignore[no-untyped-call]
        fill(self._store.numpy(), spans, views)
        return Handle(head, spans, self._store if grown or always_send_store else None)

    def get(self, handle: Handle, copy: bool) -> Any:
        """Read a message: with `copy` it is the reader's own, without it is valid until the writer's next `put`."""
        if handle.store is not None:
            self._store = handle.store
        end = sum(handle.spans[-1]) if handle.spans else 0
        memory = self._store.numpy()[:end]
        memory = memory.copy() if copy else memory
        return put_together(handle.head, [memory[start : start + length] for start, length in handle.spans])

"""Batches on their way to a device: the next one is copied while the one before it trains."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

Move = Callable[[Tensor], Tensor]


def prefetched(batches: Iterable[Any], device: torch.device) -> Iterator[Any]:
    """The same batches on `device`."""
    if device.type == "cpu":
        return iter(batches)
    if device.type == "cuda":
        return _beside(batches, device)
    return one_ahead(moved(batch, lambda part: part.to(device, non_blocking=True)) for batch in batches)


def one_ahead(batches: Iterable[Any]) -> Iterator[Any]:
    """Each batch when the next one has been asked for, so that its copy is under way before anybody computes."""
    source = iter(batches)
    for present in source:
        for coming in source:
            yield present
            present = coming
        yield present


def moved(batch: Any, move: Move) -> Any:
    """A batch with every tensor in it moved."""
    if isinstance(batch, Tensor):
        return move(batch)
    parts = [moved(part, move) for part in batch]
    return type(batch)(*parts) if hasattr(batch, "_fields") else tuple(parts)


def _beside(batches: Iterable[Any], device: torch.device) -> Iterator[Any]:
    """Copies from pinned memory in a stream of their own; the pages must be pinned for the card to fetch them alone."""
    copying = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def copied() -> Iterator[tuple[Any, Any]]:
        for batch in batches:
            pinned = moved(batch, lambda part: part.pin_memory())
            with torch.cuda.stream(copying):
                on_its_way = moved(pinned, lambda part: part.to(device, non_blocking=True))
            yield on_its_way, copying.record_event()

    for batch, there in one_ahead(copied()):
        present = torch.cuda.current_stream(device)
        present.wait_event(there)
        moved(batch, partial(_used_by, present))
        yield batch


def _used_by(stream: Any, part: Tensor) -> Tensor:
    """Its memory must not be given to the next copy before this stream has read it."""
    part.record_stream(stream)
    return part

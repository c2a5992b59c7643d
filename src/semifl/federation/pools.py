"""The ways to run jobs, by name. Another one is a file with a Pool, and a line here."""

from __future__ import annotations

from collections.abc import Callable

from semifl.federation.sites import Place
from semifl.federation.workers import Here, Pool, Workers

OnLoss = Callable[[int | None], None]  # told the exit code of a worker that died


def _here(place: Place, workers: int, on_loss: OnLoss) -> Pool:
    return Here(place)


def _processes(place: Place, workers: int, on_loss: OnLoss) -> Pool:
    place.share()
    return Workers(place, workers, on_loss=on_loss)


POOLS: dict[str, Callable[[Place, int, OnLoss], Pool]] = {"here": _here, "processes": _processes}


def open_pool(name: str, place: Place, workers: int, on_loss: OnLoss) -> Pool:
    return POOLS[name](place, workers, on_loss)

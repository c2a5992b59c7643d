"""Jobs for worker processes, in a file of their own because a worker must be able to import them."""

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def scaled(place: dict[str, Tensor], common: dict[str, Tensor], item: tuple[str, Tensor]) -> dict[str, Any]:
    name, values = item
    return {"name": name, "values": place["offset"] + common["factor"] * values, "same": values}


def echo(place: Any, common: Any, item: Any) -> Any:
    return item


def slow_first(place: Any, common: float, item: int) -> int:
    if item == 0:
        time.sleep(common)
    return item


def fails_at(place: Any, common: int, item: int) -> int:
    if item == common:
        raise ValueError(f"item {item} is bad")
    return 10 * item


def unpicklable(place: Any, common: Any, item: int) -> Any:
    return lambda: item


def threads_and_pid(place: Any, common: Any, item: int) -> tuple[int, int]:
    return torch.get_num_threads(), os.getpid()


def dies_once(place: Any, common: str, item: int) -> Tensor:
    """Kill the worker in the middle of every third item, but only the first time."""
    marker = Path(common, str(item))
    if item % 3 == 0 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return torch.full((1000,), float(item))


def dies(place: Any, common: Any, item: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def talkative(place: Any, common: int, item: int) -> tuple[int, str]:
    """More text than a pipe holds, so that the answer is still on its way when the process dies."""
    return os.getpid(), str(item) * common


def pid_and_ones(place: Any, common: Any, item: int) -> tuple[int, Tensor]:
    return os.getpid(), torch.ones(item)


def forever(place: Any, common: str, item: int) -> None:
    Path(common, str(os.getpid())).touch()
    time.sleep(3600)


def echo_common(place: Any, common: Any, item: Any) -> Any:
    return common


def waits_for(place: Any, common: str, item: int) -> tuple[int, int]:
    """Until a file is there: jobs are in the middle of their work as long as a test likes."""
    Path(common, f"begun-{item}").touch()
    while not Path(common, "go").exists():
        time.sleep(0.01)
    return item, os.getpid()


class NeedsFile:
    """A place that opens a file where it arrives."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __setstate__(self, state: dict[str, str]) -> None:
        self.path = state["path"]
        Path(self.path).read_bytes()


def full_disk(place: Any, common: Any, item: int) -> None:
    raise OSError(28, "No space left on device", "/scratch/features")

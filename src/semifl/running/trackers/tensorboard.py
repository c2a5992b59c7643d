"""Curves for TensorBoard, in RUN/tensorboard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter

from semifl.running.trackers import Settings, Tracker


class TensorBoard:
    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def write(self, numbers: dict[str, float], round: int) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, round)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


def open_tracker(directory: Path, settings: Settings) -> Tracker:
    writer: Any = SummaryWriter
    return TensorBoard(writer(directory / "tensorboard", purge_step=0))

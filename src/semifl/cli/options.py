"""Options that several verbs share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from semifl.configuration.config import Config
    from semifl.toml import Table

What = Annotated[str, typer.Argument(metavar="PRESET|FILE", help="The name of a preset, or a TOML file.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one value, e.g. method.threshold=0.9.")
]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes that train clients [default: one per core].")
]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="Runs side by side [default: one per core].")]
WorkersInEach = Annotated[int, typer.Option("--workers", min=1, help="Processes that train clients, in each run.")]
TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Also write curves for TensorBoard.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")]
RunDir = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]


def load(what: str, settings: list[str] | None) -> Config:
    """The configuration that a preset's or a file's name stands for, with the settings applied."""
    from semifl.configuration.config import decode

    return decode(table(what, settings))


def table(what: str, settings: list[str] | None) -> Table:
    """The same before it is checked."""
    from semifl.configuration.config import override, read
    from semifl.studies import presets

    looks_like_file = what.endswith(".toml") or "/" in what or Path(what).is_file()
    return override(read(Path(what)) if looks_like_file else presets.find(what).table, settings or [])


def worker_count(workers: int | None) -> int:
    """As many as asked for, or one per core that this process may use."""
    if workers is not None:
        return workers
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def device_name(device: str) -> str:
    """What to compute on; here, because importing torch takes longer than most commands."""
    from semifl.learning.devices import find_device

    return find_device(device)

"""`semifl run`: train, from a preset or a file."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Annotated

import typer

from semifl.cli import options


def command(
    what: options.What,
    settings: options.Settings = None,
    out: Annotated[Path | None, typer.Option("--out", help="The run directory [default: runs/NAME-seed-N].")] = None,
    workers: options.Workers = None,
    on: options.On = "",
    device: options.Device = "auto",
    tensorboard: options.TensorBoard = False,
    track: options.Track = None,
) -> None:
    """Train a model and write a run directory."""
    from semifl.cli.display import finished, interrupted
    from semifl.running.loop import start
    from semifl.running.terminal import display
    from semifl.running.trackers import tracked

    config = options.load(what, settings)
    directory = out or _free_directory(Path(what).stem, config.run.seed)
    team = options.team(on, workers, device)
    with (
        interrupted(directory, on),
        display() as person,
        tracked(options.trackers(tensorboard, track), directory, person) as watcher,
    ):
        result = start(config, directory, team, options.device_name(device), watcher)
    finished(directory, result)


def _free_directory(name: str, seed: int) -> Path:
    """runs/NAME-seed-N, or the first free name after it: a run is never overwritten."""
    wanted = Path("runs") / f"{name}-seed-{seed}"
    if not wanted.exists():
        return wanted
    return next(path for number in count(2) if not (path := wanted.with_name(f"{wanted.name}-{number}")).exists())

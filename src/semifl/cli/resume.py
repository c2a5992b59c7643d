"""`semifl resume`: continue a run from its directory."""

from __future__ import annotations

from typing import Annotated

import typer

from semifl.cli import options


def command(
    directory: options.RunDir,
    rounds: Annotated[
        int | None, typer.Option("--rounds", min=1, help="Give the run another number of rounds.")
    ] = None,
    workers: options.Workers = None,
    on: options.On = "",
    device: options.Device = "auto",
    tensorboard: options.TensorBoard = False,
    track: options.Track = None,
) -> None:
    """Continue a run that was interrupted, or give a finished one more rounds."""
    from semifl.cli.display import finished, interrupted
    from semifl.running.loop import resume
    from semifl.running.terminal import display
    from semifl.running.trackers import tracked

    team = options.team(on, workers, device)
    with (
        interrupted(directory, on),
        display() as person,
        tracked(options.trackers(tensorboard, track), directory, person) as watcher,
    ):
        result = resume(directory, team, options.device_name(device), watcher, rounds)
    finished(directory, result)

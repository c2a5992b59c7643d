"""`semifl deploy stop`: end the run, or this machine's part in the federation."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from semifl.cli.deploy.kit_options import operators


def command(
    kit: Annotated[
        Path | None, typer.Argument(metavar="[KIT]", help="A kit [default: the only operator's in . or kits/].")
    ] = None,
) -> None:
    """With an operator's kit stop the run after its round; with a site's or the hub's end this machine's part."""
    from semifl.deploy.kit import open_kit

    if kit is not None and kit.is_dir() and open_kit(kit).kind != "operator":
        from semifl.deploy.flare.processes import stop

        stop(open_kit(kit))
        typer.echo(f"{open_kit(kit).name} has left; 'semifl deploy {open_kit(kit).kind}' starts it again")
        return
    _stop_runs(kit)


def _stop_runs(kit: Path | None) -> None:
    from semifl.deploy.flare.session import HubDown, Line, NotRunning
    from semifl.errors import RunStopped

    desk = operators(kit, "stop")
    try:
        line = Line(desk)
    except HubDown as error:
        raise RunStopped(str(error)) from error
    try:
        jobs = line.running()
        for job, name in jobs.items():
            try:
                line.ask(job, {"wish": "stopped"})
            except NotRunning:  # it waits, or is on its way to the sites
                line.abort(job)
            typer.echo(f"{name.removeprefix('semifl-')} stops after this round; every complete round is kept")
        while jobs.keys() & line.running().keys():
            time.sleep(0.5)
    except HubDown as error:
        raise RunStopped(str(error)) from error
    finally:
        line.close()
    typer.echo("stopped" if jobs else "no run is going on")

"""`semifl deploy stop`: end the run, or this machine's part in the federation."""

from __future__ import annotations

import time
from pathlib import Path

import typer

from semifl.cli.deploy.kit_options import AnyKit, of_this_machine, operators

TRIES = 20  # questions to a job before it is aborted, half a second apart


def command(kit: AnyKit = None) -> None:
    """With an operator's kit stop the run after its round; with a site's or the hub's end this machine's part."""
    if here := of_this_machine(kit, "stop"):
        from semifl.deploy.flare.processes import stop

        stop(here)
        typer.echo(f"{here.name} has left; 'semifl deploy {here.kind}' starts it again")
    else:
        _stop_runs(kit)


def _stop_runs(kit: Path | None) -> None:
    from semifl.deploy.flare.session import HubDown, HubLine, NotRunning
    from semifl.errors import RunStopped

    operator = operators(kit, "stop")
    try:
        line = HubLine(operator)
    except HubDown as error:
        raise RunStopped(str(error)) from error
    try:
        jobs = line.running()
        for job, name in jobs.items():
            for _ in range(TRIES):
                try:
                    line.ask(job, {"wish": "stopped"})
                    break
                except NotRunning:  # on its way to the sites, or busy
                    time.sleep(0.5)
            else:
                line.abort(job)  # it waits for sites
            typer.echo(f"{name.removeprefix('semifl-')} stops after this round; every complete round is kept")
        while jobs.keys() & line.running().keys():
            time.sleep(0.5)
    except HubDown as error:
        raise RunStopped(str(error)) from error
    finally:
        line.close()
    typer.echo("stopped" if jobs else "no run is going on")

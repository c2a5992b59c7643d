"""`semifl deploy hub`: the machine with the labels, to which sites and operators connect."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from semifl.cli import options
from semifl.cli.deploy.kit_options import KitPath, opened


def command(
    kit: KitPath,
    data: Annotated[Path, typer.Option("--data", help="The folder with labeled/<class>/ and test/<class>/.")],
    device: options.Device = "auto",
) -> None:
    """Start the hub: it holds the labels and tests the model; runs are started by operators."""
    hub = opened(kit, "hub", "hub")
    from semifl.deploy.flare.processes import refuse_busy_port, refuse_second, supervise
    from semifl.deploy.pictures import HubPictures
    from semifl.deploy.place import PlaceOfData, write_place

    refuse_second(hub)
    refuse_busy_port(hub)
    found = HubPictures(str(data.absolute()), sites=hub.sites).survey().counts
    write_place(hub.folder, PlaceOfData(data.absolute(), device=options.device_name(device)))
    labeled, tested = (sum(found[part].values()) for part in ("labeled", "test"))
    typer.echo(f"{hub.name}: {labeled} labeled pictures of {len(found['labeled'])} classes, {tested} to test with")
    typer.echo(f"sites and operators connect to {hub.address}:{hub.port}; expected are {', '.join(hub.sites)}")
    typer.echo(f"Ctrl-C or 'semifl deploy stop {hub.folder}' ends it; a run that is going on can be continued later")
    supervise(hub, typer.echo)
    typer.echo(f"{hub.name} has ended")

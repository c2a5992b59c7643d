"""`semifl deploy site`: a site joins the federation with the pictures of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semifl.cli import options
from semifl.cli.deploy.kit_options import KitPath, opened

if TYPE_CHECKING:
    from semifl.deploy.policy import Policy


def command(
    kit: KitPath,
    data: Annotated[Path, typer.Option("--data", help="The folder with this site's pictures.")],
    labels: Annotated[
        Path | None, typer.Option("--labels", help="Pictures in a folder per class, to tell the model's accuracy here.")
    ] = None,
    device: options.Device = "auto",
) -> None:
    """Join the federation: train on this folder's pictures, which never leave the machine."""
    site = opened(kit, "site", "site")
    from semifl.deploy.flare.processes import refuse_second, supervise
    from semifl.deploy.pictures import count_pictures
    from semifl.deploy.place import PlaceOfData, write_place
    from semifl.deploy.policy import read_policy

    refuse_second(site)
    policy = read_policy(site.policy)
    pictures = count_pictures(data)
    own = f", {count_pictures(labels)} of its own labels" if labels else ""
    absolute = labels.absolute() if labels else None
    write_place(site.folder, PlaceOfData(data.absolute(), absolute, options.device_name(device)))
    typer.echo(f"{site.name}: {pictures} pictures{own}; the hub is at {site.address}:{site.port}")
    typer.echo(f"leaves this machine: how training changes the model, {told(policy)}; policy: {site.policy}")
    typer.echo(f"Ctrl-C or 'semifl deploy stop {site.folder}' ends it")
    supervise(site, typer.echo)
    typer.echo(f"{site.name} has left")


def told(policy: Policy) -> str:
    """What the policy lets out beside the weights, in words."""
    if policy.privacy.noise:
        return "with noise, and what that has cost (ε, δ)"
    words = {
        "counts": "numbers of pictures",
        "training": "mean losses",
        "confidence": "confidence",
        "class_histogram": "pictures per class",
        "statistics": "BatchNorm statistics",
        "accuracy": "accuracy on its own labels",
    }
    return ", ".join(
        ["how many pictures that rests on", *(words[each] for each in words if getattr(policy.share, each))]
    )

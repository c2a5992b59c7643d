"""`semifl backbone`: bring pre-trained weights to this machine, and see which they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from semifl.models._backbone import Backbone

app = typer.Typer(help="Fetch pre-trained backbones.", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="efficientnet_lite0, or a name of the Hugging Face hub.")]


@app.command("get")
def get(
    name: Name,
    sha256: Annotated[str, typer.Option("--sha256", help="What the weights must be; others are not kept.")] = "",
) -> None:
    """Fetch a backbone's weights (safetensors alone, and no code) and verify them."""
    from semifl.trained.backbones import fetch

    _say(fetch(name, sha256))


@app.command("show")
def show(source: Annotated[str, typer.Argument(metavar="NAME|FOLDER", help="A backbone that is here.")]) -> None:
    """Print where a backbone lies and what identifies it: a site and its hub need the same."""
    from semifl.models._backbone import find

    _say(find(source))


def _say(backbone: Backbone) -> None:
    mean, std = (", ".join(f"{value:.3f}" for value in values) for values in backbone.normalisation)
    typer.echo(f"folder     {backbone.folder}")
    typer.echo(f"type       {backbone.config['model_type']}")
    typer.echo(f"pictures   {backbone.size} × {backbone.size}, mean {mean}, standard deviation {std}")
    typer.echo(f"licence    {backbone.licence}")
    typer.echo(f"hash       {backbone.hash}")

"""`semifl deploy init`: the file that says who takes part in a federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from semifl.errors import UserError


def command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file, e.g. project.toml.")],
    name: Annotated[str, typer.Option("--name", help="The project's name.")] = "my-project",
    hub: Annotated[str, typer.Option("--hub", metavar="ADDRESS", help="How others reach the hub.")] = "",
    port: Annotated[int, typer.Option("--port", help="The hub's port, the only one that has to be open.")] = 8002,
    site: Annotated[list[str] | None, typer.Option("--site", metavar="NAME", help="A site; again for each.")] = None,
    operator: Annotated[
        list[str] | None, typer.Option("--operator", metavar="E-MAIL", help="Who may start runs; again for each.")
    ] = None,
) -> None:
    """Write down who takes part: the hub, the sites, and the people who may start runs."""
    from semifl.deploy import project

    sites, operators = site or ["clinic-a", "clinic-b"], operator or ["alice@example.org"]
    written = project.make(name, hub or "hub.example.org", sites, operators, port=port)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as new:
            new.write(written.text(str(file)))
    except FileExistsError as error:
        raise UserError(f"{file} is there already: edit it, or name a new file") from error
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from error
    examples = {"hub.address": hub, "sites.names": site, "operators.names": operator}
    missing = [key for key, given in examples.items() if not given]
    typer.echo(f"{file} is written" + (f"; {', '.join(missing)} are examples: edit them" if missing else ""))
    typer.echo(f"then: semifl deploy kits {file}")

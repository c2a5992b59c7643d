"""`semifl deploy renew`: new certificates before the old ones end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semifl.cli.deploy.kits import File, Out, chosen, load, tell
from semifl.errors import UserError

if TYPE_CHECKING:
    from semifl.deploy.flare.provision import Authority


def command(
    file: File = Path("project.toml"),
    names: Annotated[list[str] | None, typer.Argument(metavar="[NAME]…", help="Whose kits [default: all].")] = None,
    out: Out = None,
    new_root: Annotated[
        bool, typer.Option("--new-root", help="Shut out every kit made so far, e.g. because one was lost.")
    ] = False,
) -> None:
    """Make new kits with new certificates; a kit that is opened over an older one keeps its policy and its runs."""
    project, authority = load(file, "renew")
    wanted = chosen(project, names or []) or list(project.kinds)
    reason = _why_new_root(authority, new_root)
    if reason and names:
        raise UserError(f"{reason}, so all kits have to be replaced: run 'semifl deploy renew' without names")
    if reason:
        authority.retire_root()
    from semifl.deploy.flare.provision import make_kits

    made = make_kits(authority, wanted, out or file.parent / "kits")
    tell(authority, made, file)
    if reason:
        typer.echo(f"note: {reason}: ALL kits have to be replaced, those made before cannot connect to the new hub")


def _why_new_root(authority: Authority, asked: bool) -> str:
    """Certificates cannot outlive the root that signs them."""
    ends = authority.root_expires()
    if ends is None:
        return ""
    if asked:
        return "there is a new root certificate, as you asked"
    needed = datetime.now(UTC) + timedelta(days=authority.project.days)
    return f"the root certificate ends on {ends.date()}, too early for new kits" if ends < needed else ""

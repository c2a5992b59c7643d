"""How a kit is named on a command line, and opened."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semifl.errors import UserError

if TYPE_CHECKING:
    from semifl.deploy.kit import Kit

KitPath = Annotated[
    Path, typer.Argument(metavar="KIT", help="A kit: the sealed file, or the folder it was opened into.")
]
AnyKit = Annotated[
    Path | None, typer.Argument(metavar="[KIT]", help="A kit [default: the only operator's in . or kits/].")
]
OperatorKit = Annotated[
    Path | None,
    typer.Option("--kit", envvar="SEMIFL_KIT", help="The operator's kit [default: the only one in . or kits/]."),
]


def opened(path: Path, kind: str, verb: str) -> Kit:
    """The kit at `path`, if it is of the kind that the verb needs; a certificate that ends soon is told."""
    from semifl.deploy.flare.provision import need_flare, settle
    from semifl.deploy.kit import expect, expiry_warning, open_kit

    need_flare(verb)
    kit = expect(open_kit(path, _ask), kind, verb)
    if warning := expiry_warning(kit):
        typer.echo(f"warning: {warning}", err=True)
    settle(kit)
    return kit


def of_this_machine(path: Path | None, verb: str) -> Kit | None:
    """The hub's or a site's kit at `path`, be it expired or not; None if an operator's is meant."""
    from semifl.deploy.flare.provision import need_flare
    from semifl.deploy.kit import open_kit, read_header

    if path is None or (path.is_file() and read_header(path)["kind"] == "operator"):
        return None
    need_flare(verb)
    kit = open_kit(path, _ask)
    return None if kit.kind == "operator" else kit


def operators(path: Path | None, verb: str) -> Kit:
    """The operator's kit that was named, or the only one that lies about."""
    return opened(path or _lying_about(), "operator", verb)


def _ask(question: str) -> str:
    from semifl.deploy.kit import PASSPHRASE

    if not sys.stdin.isatty():
        raise UserError(f"there is nobody to ask for the {question}: put it into the environment variable {PASSPHRASE}")
    return str(typer.prompt(question, hide_input=True))


def _lying_about() -> Path:
    from semifl.deploy.kit import read_header, read_kit

    found: dict[str, Path] = {}
    for path in sorted([*Path().glob("*"), *Path("kits").glob("*")]):
        try:
            if path.is_dir() and (path / "kit.toml").exists() and read_kit(path).kind == "operator":
                found[read_kit(path).name] = path  # an opened kit needs no passphrase, so it goes before its file
            elif path.suffix == ".kit" and read_header(path)["kind"] == "operator":
                found.setdefault(read_header(path)["name"], path)
        except UserError:
            continue
    if len(found) == 1:
        return next(iter(found.values()))
    several = f"there are several here ({', '.join(found)})" if found else "there is none here"
    raise UserError(
        f"name the operator's kit, {several}: 'deploy run --kit KIT', 'deploy status KIT', 'deploy stop KIT'"
    )

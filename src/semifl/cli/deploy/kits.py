"""`semifl deploy kits`: one sealed kit for the hub, each site and each operator."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semifl.errors import UserError
from semifl.registry import did_you_mean

if TYPE_CHECKING:
    from semifl.deploy.flare.provision import Authority, Made
    from semifl.deploy.project import Project

File = Annotated[Path, typer.Argument(metavar="FILE", help="The project, as 'semifl deploy init' wrote it.")]
Out = Annotated[Path | None, typer.Option("--out", help="Where the kits go [default: kits, beside the project].")]


def command(
    file: File = Path("project.toml"),
    out: Out = None,
    again: Annotated[
        list[str] | None, typer.Option("--again", metavar="NAME", help="Make this one's kit anew; again for each.")
    ] = None,
) -> None:
    """Make a sealed kit for everybody in the project who has none yet."""
    project, authority = load(file, "kits")
    known, anew = authority.issued(), chosen(project, again or [])
    wanted = [name for name in project.kinds if name not in known or name in anew]
    refuse_expired_root(authority)
    from semifl.deploy.flare.provision import make_kits

    made = make_kits(authority, wanted, out or file.parent / "kits")
    tell(authority, made, file)


def load(file: Path, verb: str) -> tuple[Project, Authority]:
    """The project and the authority beside it."""
    from semifl.deploy.flare.provision import Authority, need_flare
    from semifl.deploy.project import read

    project = read(file)
    need_flare(verb)
    return project, Authority(file.parent / "authority", project)


def chosen(project: Project, names: list[str]) -> list[str]:
    """Names given on the command line, if the project knows them."""
    for name in names:
        if name not in project.kinds:
            raise UserError(f"{name!r} is not in the project{did_you_mean(name, project.kinds)}")
    return names


def refuse_expired_root(authority: Authority) -> None:
    ends = authority.root_expires()
    if ends and ends <= datetime.now(UTC):
        raise UserError(
            f"the root certificate expired on {ends.date()}: 'semifl deploy renew' makes a new one and new kits for all"
        )


def tell(authority: Authority, made: list[Made], file: Path) -> None:
    """The table of all kits, the passphrases of the new ones, and what to look after."""
    issued, new = authority.issued(), {kit.name: kit for kit in made}
    rows = [("name", "kind", "valid until", "kit", "passphrase")]
    for name, kit in issued.items():
        fresh = new.get(name)
        place = (str(fresh.file), fresh.passphrase) if fresh else ("made before", "")
        rows.append((name, kit.kind, str(kit.expires), *place))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for row in rows:
        typer.echo("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip())
    if made:
        typer.echo("\neach passphrase is shown only now: send it by another channel than its kit")
        typer.echo(f"keep {authority.folder} safe and to yourself: whoever has it can make sites and operators")
    for line in _warnings(authority, file, datetime.now(UTC).date()):
        typer.echo(f"note: {line}")


def _warnings(authority: Authority, file: Path, today: date) -> list[str]:
    """What expires within thirty days, what no longer fits the project, and who still has a kit but should not."""
    lines, project, soon = [], authority.project, today + timedelta(days=30)
    for name, kit in authority.issued().items():
        if name not in project.kinds:
            lines.append(
                f"{name} is no longer in the project, but its kit is valid until {kit.expires}; "
                f"'semifl deploy renew {file} --new-root' shuts it out and replaces all kits"
            )
        elif kit.expires <= soon:
            lines.append(f"the kit of {name} ends on {kit.expires}: semifl deploy renew {file} {name}")
        elif kit.outdated(project):
            lines.append(
                f"the kit of {name} is from before the project changed: semifl deploy kits {file} --again {name}"
            )
    ends = authority.root_expires()
    if ends and ends.date() <= soon:
        lines.append(f"the root certificate ends on {ends.date()}; 'semifl deploy renew {file}' will replace all kits")
    return lines

"""`semifl report`: one page about a run, or about several side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from semifl.errors import UserError

Runs = Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories; seeds of one kind become a band.")]
Out = Annotated[
    Path | None, typer.Option("-o", "--out", help="[default: report.html in the run directory, or here for several]")
]


def command(
    runs: Runs,
    out: Out = None,
    watch: Annotated[bool, typer.Option("--watch", help="Serve the page and refresh it as rounds are added.")] = False,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="For --watch; 0 takes any free one.")] = 8000,
    open_: Annotated[bool, typer.Option("--open", help="Show the page in a browser.")] = False,
) -> None:
    """Write a self-contained HTML page about one run or several, finished or not."""
    if watch:
        _serve(runs, port, open_)
        return
    from semifl.report.page import write_report

    path = out or (runs[0] if len(runs) == 1 else Path()) / "report.html"
    try:
        write_report(runs, path)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
    typer.echo(f"report       {path}  ({path.stat().st_size / 1000:.0f} kB)")
    if open_:
        _open(path.resolve().as_uri())


def _serve(runs: list[Path], port: int, open_: bool) -> None:
    from semifl.report.watch import PageServer

    with PageServer(runs, port) as server:
        typer.echo(f"report       {server.address}  (Ctrl-C ends it)")
        if open_:
            _open(server.address)
        server.serve_forever()  # until Ctrl-C, which the command line turns into exit code 130


def _open(address: str) -> None:
    import webbrowser

    webbrowser.open(address)

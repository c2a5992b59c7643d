"""`semifl deploy`: a federation of real machines; one file per verb."""

from __future__ import annotations

import typer

from semifl.cli.deploy import hub, init, kits, renew, run, site, status, stop

app = typer.Typer(help="Run a federation across machines of different owners.", no_args_is_help=True)
app.command("init")(init.command)
app.command("kits")(kits.command)
app.command("renew")(renew.command)
app.command("hub")(hub.command)
app.command("site")(site.command)
app.command("run")(run.command)
app.command("status")(status.command)
app.command("stop")(stop.command)

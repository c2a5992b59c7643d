"""`semifl deploy run`: train in the federation, from an operator's machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from semifl.cli import options
from semifl.cli.deploy.kit_options import OperatorKit, operators
from semifl.records.metrics import Metric
from semifl.records.record import RoundRecord
from semifl.words import printable

if TYPE_CHECKING:
    from semifl.deploy.kit import Kit
    from semifl.running.context import BaselineProgress


class RoundLines:
    """One line per round, and whatever else there is to know."""

    def __init__(self) -> None:
        from semifl.running.terminal import BaselineLines

        self._console = Console(stderr=True, highlight=False, markup=False, emoji=False)
        self._baselines = BaselineLines()

    def said(self, message: str) -> None:
        self._console.print(printable(message), style="yellow" if message.startswith("warning") else None)

    def baseline(self, progress: BaselineProgress) -> None:
        if line := self._baselines.line(progress):
            self._console.print(line)

    def round(self, record: RoundRecord, best: float | None, metric: Metric, rounds: int) -> None:
        from semifl.running.terminal import facts_of

        self._console.print(printable(f"round {record['round']} of {rounds}: {facts_of(record, best, metric)}"))


def command(
    config: options.What,
    kit: OperatorKit = None,
    settings: options.Settings = None,
    name: Annotated[
        str | None, typer.Option("--name", help="The run's name at the hub [default: NAME-seed-N].")
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Where its results go [default: runs/NAME].")] = None,
) -> None:
    """Train a model with all sites; the same command again follows the run, or goes on with it."""
    from semifl.cli.display import finished
    from semifl.deploy.flare.mirror import Mirror
    from semifl.deploy.flare.supervisor import Supervisor

    table = options.table(config, settings)
    run = name or f"{Path(config).stem}-seed-{table.get('seed', 0)}"
    operator = operators(kit, "run")
    _check(run, table, operator)
    directory = out or Path("runs") / run
    watcher = RoundLines()
    supervisor = Supervisor(operator, run, table, Mirror(directory, watcher), watcher.said)
    try:
        result = supervisor.supervise()
    except KeyboardInterrupt:
        going_on = f"{run} goes on at the hub; the same command follows it again, 'semifl deploy stop' stops it"
        typer.echo(f"\n{going_on if supervisor.began else 'interrupted; nothing was started'}", err=True)
        raise typer.Exit(130) from None
    finished(directory, result)


def _check(run: str, table: dict[str, Any], operator: Kit) -> None:
    """What can be seen to be wrong from here is told at once; hub and sites look again."""
    from semifl.deploy.hub import Hub, hub_config, read_settings
    from semifl.deploy.order import refuse_name

    refuse_name(run)
    _, rest = read_settings(table)
    hub_config(rest, Hub(Path(), Path(), operator.sites))

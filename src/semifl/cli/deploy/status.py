"""`semifl deploy status`: who is there, and how the run goes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from semifl.cli.deploy.kit_options import AnyKit, of_this_machine, operators
from semifl.words import printable

if TYPE_CHECKING:
    from semifl.deploy.flare.session import HubLine
    from semifl.deploy.kit import Kit


def command(kit: AnyKit = None) -> None:
    """Show which sites are up, the round, and who answered; with a site's or the hub's kit, how this machine does."""
    if here := of_this_machine(kit, "status"):
        _this_machine(here)
        return
    from semifl.deploy.flare.session import HubDown, HubLine, NotRunning
    from semifl.errors import RunStopped

    operator = operators(kit, "status")
    try:
        line = HubLine(operator)
        try:
            _federation(operator, line)
        finally:
            line.close()
    except (HubDown, NotRunning) as error:
        raise RunStopped(str(error)) from error


def _federation(operator: Kit, line: HubLine) -> None:
    from semifl.deploy.flare.session import NotRunning

    connected = line.connected()
    news: dict[str, Any] = {}
    jobs = {job: name.removeprefix("semifl-") for job, name in line.running().items()}
    typer.echo(f"hub {operator.address}:{operator.port}: up, {len(connected)} of {len(operator.sites)} sites connected")
    for job, name in jobs.items():
        try:
            news = line.ask(job, {"after": 0})
        except NotRunning:
            typer.echo(printable(f"run {name}: waiting"))
            continue
        typer.echo(printable(f"run {name}: {_progress(news)}"))
    if not jobs:
        typer.echo("no run is going on")
    for site in operator.sites:
        turn = printable(_turn(news.get("sites", {}).get(site)))
        typer.echo(f"  {site:<20} {'up' if site in connected else 'down':<5} {turn}")


def _progress(news: dict[str, Any]) -> str:
    from semifl.deploy.flare.mirror import baseline_in, read_rounds
    from semifl.parsing import from_toml
    from semifl.records.metrics import WORDS, metric_of, said, shown
    from semifl.words import counted

    if progress := baseline_in(news):
        return str(progress)
    rounds, total = news.get("rounds", []), read_rounds(news.get("config", ""))
    done = rounds[-1]["round"] if rounds else news.get("first", 1) - 1
    metric = metric_of(from_toml(news.get("config", "")))
    tested = [value for each in rounds if (value := shown(each, metric)) is not None]
    reached = f", {WORDS[metric]} {said(metric, tested[-1])}" if tested else ""
    return f"{done} of {counted(total, 'round')} done{reached}" if total else "preparing"


def _turn(entry: dict[str, Any] | None) -> str:
    """What became of a site's last turn."""
    if not entry:
        return ""
    words = [f"round {entry['round']}: {entry['outcome']}" if "round" in entry else str(entry["outcome"])]
    if entry.get("seconds"):
        words.append(f"{entry['seconds']:.1f} s{' (slow)' if entry.get('slow') else ''}")
    if entry.get("spent"):
        words.append(f"ε = {entry['spent']['epsilon']:.2f} at δ = {entry['spent']['delta']:g}")
    if entry.get("reason"):
        words.append(entry["reason"])
    return ", ".join(words)


def _this_machine(kit: Kit) -> None:
    from semifl.deploy.flare.processes import last_error, leftovers, running
    from semifl.deploy.kit import WARN_DAYS
    from semifl.deploy.policy import read_policy
    from semifl.deploy.privacy import Ledger
    from semifl.words import counted

    up = running(kit)
    typer.echo(f"{kit.name}: {f'running (process {up})' if up else 'not running'}; its kit ends on {kit.expires}")
    if up is None and (left := leftovers(kit)):
        typer.echo(f"but {len(left)} processes of an earlier start are: 'semifl deploy stop {kit.folder}' ends them")
    if up is None and kit.logs.exists():
        typer.echo(f"last error: {last_error(kit)}")
    if 0 <= kit.days_left() <= WARN_DAYS:
        typer.echo(f"it ends in {kit.days_left()} days: whoever made it can renew it ('semifl deploy renew')")
    if kit.kind == "site":
        privacy = read_policy(kit.policy).privacy
        ledger = Ledger(kit.memory / "privacy.json")
        spent, bare = ledger.spent(privacy.delta), ledger.bare()
        if spent.epsilon:
            typer.echo(f"privacy spent so far: ε = {spent.epsilon:.2f} at δ = {spent.delta:g}")
        if bare:
            typer.echo(f"{counted(bare, 'update')} left without noise: no ε holds for what those told")

"""`semifl check`: build everything, rehearse a round, and say what the run will take."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semifl.cli import options

if TYPE_CHECKING:
    from semifl.experiments.build import World


def command(
    what: Annotated[str, typer.Argument(metavar="PRESET|FILE|RUN", help="A preset or TOML file; a run to reproduce.")],
    settings: options.Settings = None,
    workers: options.Workers = None,
    device: options.Device = "auto",
    reproduce: Annotated[bool, typer.Option("--reproduce", help="Run a run's first rounds again and compare.")] = False,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How many rounds to reproduce.")] = 2,
) -> None:
    """Check a configuration and its data, and estimate memory, disk, traffic and time, without training."""
    if reproduce:
        _reproduce(Path(what), rounds, options.worker_count(workers), options.device_name(device))
        return
    from semifl.experiments.build import build_world
    from semifl.experiments.estimate import estimate

    world = build_world(options.load(what, settings))
    _say_data(world)
    count = options.worker_count(workers)
    needs = estimate(world, count, options.device_name(device))
    phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in needs.seconds.items())
    free = shutil.disk_usage(Path.cwd()).free
    typer.echo("at most, if clients are confident about everything:")
    typer.echo(f"  time     {_time(needs.minutes)} for {world.config.run.rounds} rounds with {count} workers")
    typer.echo(f"           {sum(needs.seconds.values()):.1f} s a round ({phases})")
    typer.echo(f"  memory   {_size(needs.memory_bytes)}")
    typer.echo(f"  disk     {_size(needs.disk_bytes)} of {_size(free)} free here")
    typer.echo(f"  traffic  {_size(needs.bytes_down)} down and {_size(needs.bytes_up)} up a round")
    if needs.disk_bytes > free:
        typer.echo("warning: the disk is too small for this run's checkpoints", err=True)


def _reproduce(run: Path, rounds: int, workers: int, device: str) -> None:
    from semifl.experiments.reproduce import reproduce

    verdict = reproduce(run, rounds, workers, device)
    for name, (then, now) in verdict.changed.items():
        typer.echo(f"changed since: {name} was {then}, is {now}")
    if verdict.differs_at:
        typer.echo(f"{run} does NOT reproduce: round {verdict.differs_at} differs in {', '.join(verdict.fields)}")
        raise typer.Exit(1)
    typer.echo(f"{run} reproduces bit for bit: {verdict.rounds} rounds are the same in every field but their seconds")


def _say_data(world: World) -> None:
    data, division, facts = world.data, world.division, world.data.facts
    counts = division.clients.counts
    typer.echo(f"pictures   {facts.size} × {facts.size}, {facts.channels} channel(s), {facts.classes} classes")
    held = f", {len(division.validation)} held out for validation" if len(division.validation) else ""
    typer.echo(f"server     {len(division.server)} labeled{held}")
    typer.echo(f"clients    {len(counts)}, with {int(counts.min())} to {int(counts.max())} pictures each")
    typer.echo(f"test       {len(data.test_labels)} pictures")
    if data.skipped:
        typer.echo(f"skipped    {len(data.skipped)} unreadable files, the first: {data.skipped[0]}")


def _size(count: float) -> str:
    for unit in ("bytes", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit in ("bytes", "kB") else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def _time(minutes: float) -> str:
    if minutes < 1:
        return f"{60 * minutes:.0f} s"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"

"""`semifl check`: say what was found, build everything, try a round, and say what the run will take."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semifl.cli import options
from semifl.errors import UserError, error_sentence, full_traceback
from semifl.words import counted

if TYPE_CHECKING:
    from torch import Tensor

    from semifl.configuration.build import World
    from semifl.configuration.config import Config
    from semifl.data.survey import Survey

SIZES = ("smallest", "median", "largest")
DIVERGED = 20  # times the loss of guessing
MUCH = 0.25  # of a round
NAMED = 5  # files that are named one by one
LISTED = 12  # classes or sites that are named one by one


def command(
    what: Annotated[str, typer.Argument(metavar="PRESET|FILE|RUN", help="A preset, a TOML file, or a run.")],
    settings: options.Settings = None,
    workers: options.Workers = None,
    device: options.Device = "auto",
    reproduce: Annotated[bool, typer.Option("--reproduce", help="Run a run's first rounds again and compare.")] = False,
    rounds: Annotated[int, typer.Option("--rounds", min=1, help="How many rounds to reproduce.")] = 2,
    contracts: Annotated[
        bool, typer.Option("--contracts", help="Try what semifl relies on in a method, in short runs of it.")
    ] = False,
) -> None:
    """Check a configuration and its data, and estimate memory, disk, traffic and time, without training."""
    if reproduce and contracts:
        raise UserError("--reproduce is about a run and --contracts about a method: give one of them")
    if contracts:
        _contracts(options.load(what, settings, run_too=True))
    elif reproduce:
        _reproduce(Path(what), rounds, options.worker_count(workers), options.device_name(device))
    else:
        _check(options.load(what, settings, run_too=True), options.worker_count(workers), options.device_name(device))


def _check(config: Config, count: int, device: str) -> None:
    from semifl.configuration.build import build_world, what_was_loaded
    from semifl.data.duplicates import duplicates
    from semifl.running.estimate import estimate

    survey = getattr(config.data.thing, "survey", None)
    if survey:
        _say_found(survey())
    world = build_world(config)
    _say_data(world, per_class=not survey)
    for sentence in duplicates(world.data):
        typer.echo(f"warning: {sentence}", err=True)
    needs = estimate(world, count, device)
    phases = ", ".join(f"{name} {seconds:.1f}" for name, seconds in needs.seconds.items())
    typer.echo(f"model      {world.config.model.name}, {needs.parameters:,} parameters")
    if loaded := what_was_loaded(world):
        typer.echo(f"weights    {loaded}")
    if needs.loss is not None:
        _say_step(needs.loss, world.data.facts.classes)
    free = shutil.disk_usage(Path.cwd()).free
    typer.echo("at most, if clients are confident about everything:")
    length = counted(world.config.run.rounds, "round")
    typer.echo(f"  time     {_time(needs.minutes)} for {length} with {counted(count, 'worker')}")
    typer.echo(f"           {sum(needs.seconds.values()):.1f} s a round ({phases})")
    testing = needs.seconds.get("test", 0.0) / sum(needs.seconds.values())
    if testing > MUCH and world.config.run.test_every < 5:
        typer.echo(f"           {100 * testing:.0f} % of that is testing: test_every = 5 would do it every fifth round")
    if needs.once:
        typer.echo(f"           {needs.once:.0f} s once for the frozen features of all clients")
    typer.echo(f"  memory   {_size(needs.memory_bytes)}")
    typer.echo(f"  disk     {_size(needs.disk_bytes)} of {_size(free)} free here")
    typer.echo(f"  traffic  {_size(needs.bytes_down)} down and {_size(needs.bytes_up)} up a round")
    if needs.disk_bytes > free:
        typer.echo("warning: the disk is too small for this run's checkpoints", err=True)


def _say_step(loss: float, classes: int) -> None:
    """A loss far above that of guessing is no start: nothing would come of such a run."""
    guessing = math.log(classes)
    if not loss <= DIVERGED * guessing:  # nor is one that is no number
        raise UserError(
            f"the server's first steps diverge: their loss is {loss:.3g}, where guessing has {guessing:.2f}; "
            "lower method.lr"
        )
    typer.echo(f"step       the server's first steps work, loss {loss:.3f}")


def _reproduce(run: Path, rounds: int, workers: int, device: str) -> None:
    from semifl.running.reproduce import reproduce

    verdict = reproduce(run, rounds, workers, device)
    for name, (then, now) in verdict.changed.items():
        typer.echo(f"changed since: {name} was {then}, is {now}")
    if verdict.differs_at:
        typer.echo(f"{run} does NOT reproduce: round {verdict.differs_at} differs in {', '.join(verdict.fields)}")
        raise typer.Exit(1)
    typer.echo(
        f"{run} reproduces bit for bit: {counted(verdict.rounds, 'round')} the same in every field but their seconds"
    )


def _contracts(config: Config) -> None:
    from semifl.running.contracts import ContractBroken, check_contracts

    broken = 0
    for asked, error, untried in check_contracts(config):
        fault = str(error) if isinstance(error, ContractBroken) else error_sentence(error) if error else ""
        word, rest = ("BROKEN", f": {fault}") if fault else ("untried", f": {untried}") if untried else ("kept", "")
        typer.echo(f"{word:<8} {asked}{rest}")
        if error and options.wants_traceback():
            typer.echo(full_traceback(error), err=True)
        broken += bool(error)
    if broken:
        typer.echo(f"{config.method.name} breaks {counted(broken, 'contract')}")
        raise typer.Exit(1)
    typer.echo(f"{config.method.name} keeps its contracts")


def _say_found(found: Survey) -> None:
    """What lies in a folder of pictures, as it is there."""
    for part, counts in found.counts.items():
        typer.echo(f"{part:<10} {_listed(counts)}")
    if found.sizes:
        small, middle, large = (found.sizes[at] for at in (0, len(found.sizes) // 2, -1))
        shown = " · ".join(f"{name} {w} × {h}" for name, (w, h) in zip(SIZES, (small, middle, large), strict=True))
        typer.echo(f"sizes      {shown} pixels")
        typer.echo(f"kinds      {', '.join(f'{count} {kind}' for kind, count in found.kinds.most_common())}")
    if found.others:
        names = ", ".join(f"{count} {suffix}" for suffix, count in found.others.most_common())
        typer.echo(f"not read   files that are no pictures we know: {names}")
    if found.unlisted:
        typer.echo(f"not listed {counted(found.unlisted, 'picture')} of which the CSV file does not speak; left out")


def _listed(counts: dict[str, int]) -> str:
    """How many pictures there are of each, or where they are many, how few and how many."""
    total = f"{sum(counts.values())} pictures"
    if len(counts) > LISTED:
        return f"{total} in {len(counts)} folders, {min(counts.values())} to {max(counts.values())} in each"
    return f"{total}: {', '.join(f'{name} {count}' for name, count in counts.items())}"


def _by_class(labels: Tensor, names: tuple[str, ...]) -> dict[str, int]:
    return dict(zip(names, labels.bincount(minlength=len(names)).tolist(), strict=True))


def _say_data(world: World, per_class: bool) -> None:
    data, division, facts = world.data, world.division, world.data.facts
    counts = division.clients.counts
    typer.echo(f"pictures   {facts.size} × {facts.size}, {counted(facts.channels, 'channel')}, {facts.classes} classes")
    held = f", {len(division.validation)} held out for validation" if len(division.validation) else ""
    typer.echo(f"server     {len(division.server)} labeled{held}")
    typer.echo(f"clients    {len(counts)}, with {int(counts.min())} to {int(counts.max())} pictures each")
    typer.echo(f"test       {len(data.test_labels)} pictures")
    if per_class:
        typer.echo(f"labeled    {_listed(_by_class(data.labels[division.server], facts.class_names))}")
        typer.echo(f"to test    {_listed(_by_class(data.test_labels, facts.class_names))}")
    if facts.classes == 2 and not world.config.run.positive:  # nobody has said, so say what follows from it
        first, second = facts.class_names
        typer.echo(f"positive   {second}, the second of two classes; the key positive may say {first}")
    if data.skipped:
        typer.echo(f"skipped    {len(data.skipped)} unreadable files, the first: {', '.join(data.skipped[:NAMED])}")


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

"""Options that several verbs share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import click
import typer

from semifl.errors import UserError
from semifl.words import resume_command

if TYPE_CHECKING:
    from semifl.configuration.config import Config
    from semifl.federation.cluster.address import Cluster
    from semifl.federation.workers import Log
    from semifl.toml import Table

What = Annotated[str, typer.Argument(metavar="PRESET|FILE", help="The name of a preset, or a TOML file.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one value, e.g. method.threshold=0.9.")
]
Workers = Annotated[
    int | None, typer.Option("--workers", min=1, help="Processes that train clients [default: one per core].")
]
Jobs = Annotated[int | None, typer.Option("--jobs", min=1, help="Runs side by side [default: one per core].")]
WorkersInEach = Annotated[int, typer.Option("--workers", min=1, help="Processes that train clients, in each run.")]
On = Annotated[
    str,
    typer.Option("--on", metavar="ADDRESS|FILE", help="A Dask cluster: tcp://HOST:8786, or a file (docs/cluster.md)."),
]
TableFormat = Annotated[
    Literal["markdown", "latex", "csv", "json"], typer.Option("--format", help="How the table is printed.")
]
TensorBoard = Annotated[bool, typer.Option("--tensorboard", help="Also write curves for TensorBoard.")]
Track = Annotated[
    list[str] | None, typer.Option("--track", metavar="NAME", help="Also tell tensorboard, mlflow or wandb each round.")
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or mps.")]
TRACEBACK = "--traceback"  # of every verb that runs a person's code
RunDir = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]


def load(what: str, settings: list[str] | None, run_too: bool = False) -> Config:
    """The configuration that a preset's or a file's name stands for, with the settings applied; or that of a run."""
    from semifl.configuration.config import decode

    found = table(what, settings, run_too)
    data = found.get("data", {})
    if isinstance(data, dict) and "name" not in data:
        raise UserError(f"{what} does not say what to learn from: set data.name, to one of 'semifl list data'")
    return decode(found)


def table(what: str, settings: list[str] | None, run_too: bool = False) -> Table:
    """The same before it is checked."""
    from semifl.configuration.code import refuse_foreign_code
    from semifl.configuration.config import override, read
    from semifl.studies import presets

    path = Path(what)
    if path.is_dir():
        path = _in_folder(path, run_too)
        refuse_foreign_code(read(path), path.parent)
    looks_like_file = path.suffix == ".toml" or "/" in what or path.is_file()
    return override(read(path) if looks_like_file else presets.find(what).table, settings or [], notify)


def notify(sentence: str) -> None:
    """Print a note that a person should see, beside what a command prints."""
    typer.echo(f"note: {sentence}", err=True)


def _in_folder(folder: Path, run_too: bool) -> Path:
    """A folder is no configuration, but people name it where they mean the file in it."""
    from semifl.records.directory import RunDirectory

    config = folder / "config.toml"
    if not config.is_file():
        raise UserError(f"{folder} is a folder without a config.toml: name a preset or a TOML file")
    if RunDirectory(folder).is_project():
        raise UserError(f"{folder} is a folder: name the configuration in it, {config}")
    if not run_too:
        raise UserError(f"{folder} is a run: go on with it by `{resume_command(folder)}`, or start another by {config}")
    return config


def worker_count(workers: int | None) -> int:
    """As many as asked for, or one per core that this process may use."""
    if workers is not None:
        return workers
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def team(on: str, workers: int | None, device: str) -> int | Cluster:
    """Who trains clients: processes here, or the workers of a cluster."""
    if not on:
        return worker_count(workers)
    if workers is not None:
        raise UserError("--on and --workers do not go together: a cluster has the workers that have joined it")
    from semifl.configuration.clusters import find_cluster

    return find_cluster(on, device)


class Hands(NamedTuple):
    """Who does many runs: so many processes here, or the workers of a cluster."""

    cluster: Cluster | None
    jobs: int
    workers: int  # in each run
    device: str


def hands(on: str, jobs: int | None, workers: int, device: str) -> Hands:
    if not on:
        return Hands(None, worker_count(jobs), workers, device)
    if jobs is not None or workers != 1:
        raise UserError("--on does not go with --jobs or --workers: every worker of a cluster does one run at a time")
    from semifl.configuration.clusters import find_cluster

    return Hands(find_cluster(on, device), 1, 1, device)


def told() -> Log:
    """What a cluster has to say, beside a table's lines."""
    from semifl.federation.workers import Log

    return Log(lambda event, **facts: None, lambda sentence: typer.echo(f"warning: {sentence}", err=True))


def traceback_flag() -> click.Option:
    """Return the flag that shows errors in full; `wants_traceback` tells whether it was given."""
    return click.Option([TRACEBACK], is_flag=True, expose_value=False, callback=_note, help="Show errors in full.")


def _note(context: click.Context, _: click.Parameter, given: bool) -> None:
    context.meta[TRACEBACK] = given or context.meta.get(TRACEBACK, False)


def wants_traceback() -> bool:
    return bool(click.get_current_context().meta.get(TRACEBACK))


def trackers(tensorboard: bool, track: list[str] | None) -> list[str]:
    return [*(["tensorboard"] if tensorboard else []), *(track or [])]


def device_name(device: str) -> str:
    """What to compute on; here, because importing torch takes longer than most commands."""
    from semifl.learning.devices import find_device

    return find_device(device)

"""What a person sees while a run goes on: a live line in a terminal, nothing but the outcome elsewhere."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from semifl.configuration.build import World
from semifl.errors import RunStopped, UserError
from semifl.records.record import RoundRecord, Summary
from semifl.report.advice import advise
from semifl.report.reading import read_run
from semifl.running.context import Observer, Silent

MOST_ADVICE = 3  # sentences after a run; the report has them all
WRITING_FAILED = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EPERM)
IN_THE_WAY = (errno.EINVAL, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.EFBIG, errno.ENXIO)


class Live(Silent):
    """A progress bar with the accuracy, how much the clients are confident about, and how many abstained."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("preparing", total=None, facts="")

    def labels_only(self, accuracy: float) -> None:
        self._progress.console.print(f"labels only: {accuracy:.1f} %")

    def begin(self, world: World, first_round: int) -> None:
        rounds = world.config.run.rounds
        self._progress.update(self._task, description="rounds", total=rounds, completed=first_round - 1)

    def round(self, record: RoundRecord, best: float) -> None:
        ratio = record["label_ratio"]
        facts = [f"accuracy {record['accuracy']:.1f} % (best {best:.1f})"]
        if ratio is not None:
            facts.append(f"confident {100 * ratio:.0f} %")
        if record["abstained"]:
            facts.append(f"{len(record['abstained'])} of {len(record['cohort'])} abstained")
        self._progress.update(self._task, completed=record["round"], facts=" · ".join(facts))

    def warn(self, message: str) -> None:
        self._progress.console.print(f"warning: {message}", style="yellow")


class Quiet(Silent):
    """For logs and pipes: warnings alone."""

    def warn(self, message: str) -> None:
        typer.echo(f"warning: {message}", err=True)


@contextmanager
def display() -> Iterator[Observer]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield Quiet()
        return
    columns: list[Any] = [TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn()]
    columns += [TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[facts]}")]
    with Progress(*columns, console=console) as progress:
        yield Live(progress)


@contextmanager
def interrupted(directory: Path) -> Iterator[None]:
    """Say how to go on after Ctrl-C or on a full disk: every finished round is kept."""
    try:
        yield
    except KeyboardInterrupt:
        if not (directory / "config.toml").exists():
            raise
        typer.echo(f"interrupted; every finished round is kept: semifl resume {directory}", err=True)
        raise typer.Exit(130) from None
    except RunStopped as error:
        raise RunStopped(f"{error}; every finished round is kept: semifl resume {directory}") from error
    except OSError as error:
        if error.errno not in (*WRITING_FAILED, *IN_THE_WAY):
            raise
        remedy = "make room" if error.errno in WRITING_FAILED else "put that right"
        raise UserError(
            f"cannot write {error.filename or directory}: {error.strerror}; "
            f"every finished round is kept, so {remedy} and go on with: semifl resume {directory}"
        ) from error


def finished(directory: Path, result: Summary) -> None:
    """The outcome in three lines, what to do about it if something is amiss, and where the report lies."""
    accuracy, labels_only = result["accuracy"], result["labels_only_accuracy"]
    typer.echo(f"accuracy     {accuracy:.1f} %  (best round {result['best_round']}: {result['best_accuracy']:.1f} %)")
    if labels_only is not None:
        typer.echo(f"labels only  {labels_only:.1f} %  the clients brought {accuracy - labels_only:+.1f} points")
    for sentence in advise(read_run(directory))[:MOST_ADVICE]:
        typer.echo(f"note         {sentence}")
    typer.echo(f"run          {directory}  ({result['rounds']} rounds, {result['seconds']:.0f} s)")
    typer.echo(f"report       {_written(directory)}")


def _written(directory: Path) -> str:
    """Where the report is, or why it is not; a result without its report is still a result."""
    from semifl.report.curves import draw_curves
    from semifl.report.page import write_report

    try:
        draw_curves(directory)
        return str(write_report([directory], directory / "report.html"))
    except OSError as error:
        return f"could not be written: {error.strerror}"

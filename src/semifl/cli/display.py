"""What a person is told when a run ends: its outcome, or how to go on with it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer

from semifl.errors import RunStopped, UserError
from semifl.records.record import Summary
from semifl.report.advice import advise
from semifl.report.reading import read_run

MOST_ADVICE = 3  # sentences after a run; the report has them all
WRITING_FAILED = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EPERM)
IN_THE_WAY = (errno.EINVAL, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.EFBIG, errno.ENXIO)


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

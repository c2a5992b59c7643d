"""What a person is told when a run ends: its outcome, or how to go on with it."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from semifl.errors import RunStopped, UserError, error_sentence, has_traceback, own_code_location
from semifl.records.metrics import WORDS, metric_of, of_the_kept
from semifl.records.record import Summary
from semifl.records.verdict import baseline, faults, model_of, other_numbers, read_faults, verdict, with_interval
from semifl.report.advice import advise
from semifl.report.reading import read_run
from semifl.words import counted, printable, resume_command

if TYPE_CHECKING:
    from semifl.trained.modelfile import TrainedModel

MOST_ADVICE = 3  # sentences after a run; the report has them all
WRITING_FAILED = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EPERM)
IN_THE_WAY = (errno.EINVAL, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.ELOOP, errno.EFBIG, errno.ENXIO)


@contextmanager
def interrupted(directory: Path, on: str = "") -> Iterator[None]:
    """Say how to go on after Ctrl-C or on a full disk: every finished round is kept; `on` is a cluster.

    A directory that is not a run's is that of many, which the same command goes on with.
    """
    resume = f"{resume_command(directory)}{f' --on {on}' if on else ''}"
    try:
        yield
    except KeyboardInterrupt:
        if not (directory / "config.toml").exists():
            raise
        typer.echo(f"interrupted; every finished round is kept: {resume}", err=True)
        raise typer.Exit(130) from None
    except RunStopped as error:
        raise _stopped(error, directory, resume) from error
    except OSError as error:
        if error.errno not in (*WRITING_FAILED, *IN_THE_WAY):
            raise
        remedy = "make room" if error.errno in WRITING_FAILED else "put that right"
        raise UserError(
            f"cannot write {error.filename or directory}: {error.strerror}; "
            f"every finished round is kept, so {remedy} and go on with: {resume}"
        ) from error
    except Exception as error:
        if isinstance(error, UserError) or not own_code_location(error) or not (directory / "run.log").exists():
            raise
        raise _stopped(error, directory, resume) from error


def _stopped(error: Exception, directory: Path, resume: str) -> RunStopped:
    """What ended a run, where its traceback is, and how to go on."""
    again = resume if (directory / "config.toml").exists() else "the same command goes on"
    log = directory / "run.log"
    where = f"; its traceback is in {log}" if has_traceback(error) and log.exists() else ""
    return RunStopped(f"{error_sentence(error)}{where}; every finished round is kept: {again}")


def finished(directory: Path, result: Summary) -> None:
    """Print the outcome in a few lines, what to do if something is amiss, and where the report lies."""
    for line in outcome(result):
        typer.echo(printable(line))
    for sentence in advise(read_run(directory))[:MOST_ADVICE]:
        typer.echo(printable(f"note         {sentence}"))
    typer.echo(f"run          {directory}  ({counted(result['rounds'], 'round')}, {result['seconds']:.0f} s)")
    typer.echo(f"report       {_written(directory)}")


def outcome(result: Summary) -> list[str]:
    """Return what is wrong with the model and whether clients helped, in words; then its numbers."""
    found, metric, prefix = faults(result), metric_of(result), of_the_kept(result)
    first = verdict(result)
    lines = [line for fault in found for line in (fault.sentence, f"  {fault.remedy}")] + first[len(found) :]
    of = f"  ({model_of(result, prefix)}, the best on labels held out)" if prefix else ""
    lines.append(f"{WORDS[metric]:<12} {with_interval(result, f'{prefix}{metric}')}{of}")
    if alone := baseline(result):
        lines.append(f"labels only  {with_interval(result, f'{alone}{metric}')}")
    others = other_numbers(result)
    return [*lines, f"also         {', '.join(others)}"] if others else lines


def warn_of_faults(model: TrainedModel) -> None:
    """Repeat on stderr what is wrong with a model, before anybody uses it."""
    for fault in read_faults(model.about.get("faults")):
        typer.echo(f"warning: {fault.sentence} {fault.remedy}", err=True)


def _written(directory: Path) -> str:
    """Where the report is, or why it is not; a result without its report is still a result."""
    from semifl.report.curves import draw_curves
    from semifl.report.page import write_report

    try:
        draw_curves(directory)
        return str(write_report([directory], directory / "report.html"))
    except OSError as error:
        return f"could not be written: {error.strerror}"

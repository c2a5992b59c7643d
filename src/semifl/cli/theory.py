"""`semifl theory`: the paper's analysis, measured: rates, the critical region, and a picture of the idea."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from semifl.cli.options import worker_count

if TYPE_CHECKING:
    from semifl.theory.cells import Repetition
    from semifl.theory.settings import Setting

app = typer.Typer(help="Measure what the paper proves about strong augmentation.", no_args_is_help=True)
Out = Annotated[Path | None, typer.Option("--out", help="Where results go [default: runs/theory-VERB].")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--setting", metavar="NAME|NUMBERS", help="E.g. rough, or alpha=1,q=0.5,s=0.5,v=0 [default: all]."),
]
Repetitions = Annotated[int, typer.Option("--repetitions", min=2, help="How often each size is measured.")]
Quick = Annotated[bool, typer.Option("--quick", help="Small sizes, for a first look.")]
Workers = Annotated[int | None, typer.Option("--workers", min=1, help="Processes [default: one per core].")]
SeedNumber = Annotated[int, typer.Option("--seed", help="Where all randomness starts.")]


@app.command("rates")
def rates(
    out: Out = None,
    setting: Settings = None,
    repetitions: Repetitions = 40,
    quick: Quick = False,
    workers: Workers = None,
    seed: SeedNumber = 0,
) -> None:
    """Fit the slope of the excess risk, and print it beside the theorem's exponent."""
    from semifl.theory import figures, page
    from semifl.theory import rates as measured

    directory = out or Path("runs/theory-rates")
    settings = _settings(setting)
    plan = measured.Plan(repetitions, quick, seed)
    risks = _finish(plan.cells(settings), directory, workers)
    found = measured.slopes(settings, plan, risks)
    text = measured.table(found)
    svg = figures.save(figures.draw_rates(found), directory, "rates")
    sentences = [
        "The theorem bounds the excess risk from above, so the fitted exponent should be at least the predicted one.",
        f"Every point is the mean of {repetitions} repetitions with a 95 % interval; the excess risk needs no test "
        "labels. Solid: fitted. Dashed: the predicted slope through the first point.",
    ]
    _done(text, page.write_page(directory, "How fast the risk falls", sentences, text, svg))


@app.command("critical")
def critical(
    out: Out = None,
    setting: Settings = None,
    repetitions: Repetitions = 20,
    quick: Quick = False,
    workers: Workers = None,
    seed: SeedNumber = 0,
) -> None:
    """Sweep the number of labels, and show where unlabeled points stop winning."""
    from semifl.theory import figures, page
    from semifl.theory.critical import CriticalSweep, table

    directory = out or Path("runs/theory-critical")
    settings = _settings(setting)
    sweep = CriticalSweep(repetitions, quick, seed)
    risks = _finish(sweep.cells(settings), directory, workers)
    gains = {each: sweep.gains(each, risks) for each in settings}
    text = table(sweep, gains)
    svg = figures.save(figures.draw_critical(settings, sweep, gains), directory, "critical")
    sentences = [
        "With n_u^ζ labels, unlabeled points should win below the critical ζ. That compares two upper bounds and "
        "leaves out their constants, so the observed crossing may lie elsewhere and moves with n_u.",
    ]
    _done(text, page.write_page(directory, "When unlabeled points win", sentences, text, svg))


@app.command("demo")
def demo(out: Out = None, seed: SeedNumber = 0) -> None:
    """Draw the idea in the plane: labels, confident points, where they are carried, what is learned."""
    from semifl.theory import figures, page
    from semifl.theory.demo import scene

    directory = out or Path("runs/theory-demo")
    _writable(directory)
    shown = scene(seed)
    text = f"excess risk of labels alone       {shown.before:.4f}\nexcess risk with augmented points  {shown.after:.4f}"
    svg = figures.save(figures.draw_demo(shown), directory, "demo")
    sentences = [
        "Left: a few labels between the dotted lines, and what the box kernel learns from them. Middle: unlabeled "
        "points that are nearly certain, and where augmentation carries some of them. Right: both together.",
    ]
    _done(
        text,
        page.write_page(directory, "How augmentation carries labels to where they are needed", sentences, text, svg),
    )


@app.command("gaps")
def gaps() -> None:
    """Measure what the published proof leaves open."""
    from semifl.theory.gaps import table

    typer.echo(table())


def _settings(names: list[str] | None) -> list[Setting]:
    from semifl.theory.settings import SETTINGS, find

    return list(dict.fromkeys(find(name) for name in names)) if names else list(SETTINGS.values())


def _finish(cells: list[Repetition], directory: Path, workers: int | None) -> dict[Repetition, float]:
    from semifl.theory.cells import finish

    _writable(directory)
    try:
        with _progress(len(cells)) as advance:
            return finish(cells, directory / "cells.jsonl", worker_count(workers), advance)
    except KeyboardInterrupt:
        typer.echo("interrupted; what is finished is kept: give the same command again to go on", err=True)
        raise typer.Exit(130) from None


def _writable(directory: Path) -> None:
    from semifl.errors import UserError

    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {directory}: {error.strerror}") from error


@contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda done: None
        return
    with Progress(console=console) as progress:
        task = progress.add_task("measuring", total=total)
        yield lambda done: progress.advance(task, done)


def _done(text: str, page: Path) -> None:
    typer.echo(text)
    typer.echo(f"page: {page}")

"""`semifl figure`: the paper's figures from run directories; runs what is missing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from semifl.cli import options
from semifl.cli.table import fill_table, parse_seeds, report_failures
from semifl.errors import UserError
from semifl.registry import did_you_mean

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from semifl.report.paper_figures import Curve
    from semifl.studies.paper_figures import FigureLine, PaperFigure

ABOUT = {
    "ssfl": "Figure 1: a server with labels, clients without",
    "fedsgd": "Figure 2: FixMatch works with FedSGD, at a price, and not with FedAvg",
    "theory": "Figure 3: how strong augmentation carries labels to where they are needed",
    "semifl": "Figure 4: training in parallel, and in turns",
    "cifar10": "Figure 5: learning curves on CIFAR-10",
    "quality": "Figure 6: how good the pseudo-labels are",
    "svhn": "Figure 7: learning curves on SVHN",
    "cifar100": "Figure 8: learning curves on CIFAR-100",
    "ablation": "Figure 9: local epochs, Mixup and global momentum",
    "randaugment": "Figure 10: the operations of a strong view, each at a rising magnitude",
}


def command(
    names: Annotated[list[str], typer.Argument(metavar="NAME…|all", help="Which figures.")],
    seeds: Annotated[str, typer.Option("--seeds", help="Run what is missing, e.g. 0,1,2,3.")] = "",
    scale: Annotated[
        Literal["tiny", "small", "paper"], typer.Option("--scale", help="digits, a fast CIFAR-10, or as published.")
    ] = "paper",
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="A folder, or FILE.html for one page [default: runs/figures].")
    ] = None,
    runs: Annotated[
        Path | None, typer.Option("--runs", help="Where the runs lie [default: those of the table].")
    ] = None,
    jobs: options.Jobs = None,
    workers: options.WorkersInEach = 1,
    on: options.On = "",
    device: options.Device = "auto",
) -> None:
    """Draw the paper's figures as PNG and SVG; with --seeds first run what is missing.

    Without a run: ssfl, semifl, theory, randaugment. From runs: cifar10, svhn, cifar100, fedsgd, quality, ablation.
    """
    from semifl.studies.recipes import refuse_other_recipes
    from semifl.studies.tables import ResultTable

    chosen = _chosen(names)
    page = out if out and out.suffix == ".html" else None
    folder = page.with_suffix("") if page else out or Path("runs/figures")
    _writable(folder)
    where = runs or Path("runs/tables") / f"paper-{scale}"  # a cell of a table and a line of a figure are the same runs
    hands = options.hands(on, jobs, workers, device)
    wanted, figures = parse_seeds(seeds) if seeds else [], _of_runs(chosen, scale)
    cells = tuple(line.cell for each in figures.values() for line in _lines(each))
    refuse_other_recipes(cells, where)
    drawn = [ResultTable("", cells)] if wanted and cells else []
    failures = fill_table(drawn, where, wanted, hands, "best_test_accuracy") if drawn else []
    pictures = {}
    for name in _with_runs(chosen, figures, scale, where):
        pictures[name] = _save(_drawn(name, figures, scale, where), folder, name)
        typer.echo(f"{folder / name}.png, {name}.svg")
    if page:
        _write_page(page, pictures, scale)
    report_failures(failures)


def _chosen(names: list[str]) -> list[str]:
    for name in names:
        if name not in (*ABOUT, "all"):
            raise UserError(f"there is no figure {name!r}{did_you_mean(name, ABOUT) or ': ' + ', '.join(ABOUT)}")
    return list(ABOUT) if "all" in names else list(dict.fromkeys(names))


def _writable(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror}") from error


def _of_runs(names: list[str], scale: str) -> dict[str, PaperFigure]:
    """Those of the chosen that are made from runs."""
    from semifl.studies.paper_figures import FIGURES, paper_figure

    return {name: paper_figure(name, scale) for name in names if name in FIGURES}


def _with_runs(chosen: list[str], figures: dict[str, PaperFigure], scale: str, where: Path) -> list[str]:
    """Those that can be drawn: without any run a figure would be an empty frame."""
    from semifl.studies.tables import runs_of

    empty = [
        name
        for name in chosen
        if name in figures and not any(runs_of(where, line.cell, "rounds.jsonl") for line in _lines(figures[name]))
    ]
    if empty:
        sentence = (
            f"no run of {', '.join(empty)} is in {where}: make them with "
            f"'semifl figure {' '.join(empty)} --scale {scale} --seeds 0'"
        )
        if len(empty) == len(chosen):
            raise UserError(sentence)
        options.notify(sentence)
    return [name for name in chosen if name not in empty]


def _lines(figure: PaperFigure) -> list[FigureLine]:
    return [line for panel in figure.panels for line in (*panel.lines, *panel.levels)]


def _drawn(name: str, figures: dict[str, PaperFigure], scale: str, where: Path) -> Figure:
    return _draw_runs(figures[name], scale, where) if name in figures else DIAGRAMS[name]()


def _draw_runs(figure: PaperFigure, scale: str, where: Path) -> Figure:
    from semifl.report.paper_figures import Drawing, draw

    panels = [
        Drawing(
            panel.title,
            [_curve(line, where, panel.key == "accuracy") for line in panel.lines],
            [_curve(line, where, True) for line in panel.levels],
            panel.key,
            panel.scale,
            panel.ylabel,
            panel.shares,
            panel.bytes_too,
        )
        for panel in figure.panels
    ]
    marked = any(curve.printed for panel in panels for curve in (*panel.curves, *panel.levels))
    note = "diamonds: the paper's values, of its own data" if marked else ""
    return draw(figure.title, panels, figure.columns, f"scale {scale}; {note}" if note else f"scale {scale}")


def _curve(line: FigureLine, where: Path, marked: bool) -> Curve:
    """The runs of a line that are there, whatever their seeds."""
    from semifl.report.groups import Group
    from semifl.report.paper_figures import Curve, printed_value
    from semifl.report.reading import read_run
    from semifl.studies.tables import runs_of

    runs = [read_run(path) for path in runs_of(where, line.cell, "rounds.jsonl").values()]
    return Curve(Group(line.label, runs), printed_value(line.cell.value) if marked else None)


def _randaugment() -> Figure:
    from semifl.data.distortions import real_picture, rows
    from semifl.report.diagrams import draw_distortions

    picture = real_picture()
    return draw_distortions(
        picture.permute(1, 2, 0).numpy(),
        [(row.operation, [each.numpy() for each in row.pictures], row.magnitudes) for row in rows(picture)],
    )


def _theory() -> Figure:
    from semifl.theory.demo import scene
    from semifl.theory.figures import draw_demo

    return draw_demo(scene(0))


def _ssfl() -> Figure:
    from semifl.report.diagrams import draw_ssfl

    return draw_ssfl()


def _semifl() -> Figure:
    from semifl.report.diagrams import draw_semifl

    return draw_semifl()


DIAGRAMS: dict[str, Callable[[], Figure]] = {
    "randaugment": _randaugment,
    "theory": _theory,
    "ssfl": _ssfl,
    "semifl": _semifl,
}


def _save(figure: Figure, folder: Path, name: str) -> str:
    from semifl.report.paper_figures import save

    return save(figure, folder, name)


def _write_page(page: Path, pictures: dict[str, str], scale: str) -> None:
    from semifl.report.paper_figures import write_page

    write_page(
        page, "The figures of the paper", f"scale {scale}", [(ABOUT[name], each) for name, each in pictures.items()]
    )
    typer.echo(f"page: {page}")

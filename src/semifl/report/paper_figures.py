"""The paper's figures drawn from run directories: mean and band over seeds, the printed values as marks."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semifl.durable import replace_file, replace_text
from semifl.records.record import number
from semifl.report.groups import Group, Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVEL_STYLES = ("-", "--")
STYLE = """body{font-family:system-ui,sans-serif;max-width:80rem;margin:2rem auto;padding:0 1rem;line-height:1.5}
figure{margin:0}svg{max-width:100%;height:auto}"""


@dataclass(frozen=True)
class Curve:
    """The runs of one line, and the value that the paper prints for it (or nothing)."""

    group: Group
    printed: float | None = None


@dataclass(frozen=True)
class Drawing:
    """One panel."""

    title: str
    curves: Sequence[Curve]
    levels: Sequence[Curve] = field(default_factory=list)  # horizontal: the best round
    key: str = "accuracy"
    scale: float = 1.0
    ylabel: str = "percent"
    shares: bool = False  # over the share of each line's rounds
    bytes_too: bool = False
    zoomed: bool = False  # the height of the curves instead of 0 to 100 percent


def printed_value(text: str) -> float | None:
    """From a printed cell, "93.1 (0.1)", the number itself."""
    return float(text.split()[0]) if text else None


def draw(title: str, panels: Sequence[Drawing], columns: int, note: str) -> Figure:
    from matplotlib.figure import Figure  # here, because importing matplotlib takes longer than most commands

    rows = -(-len(panels) // columns)
    figure = Figure(figsize=(5.2 * columns, 4.4 * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for place, panel in zip(axes, panels, strict=False):
        _draw_panel(place, panel)
    for empty in axes[len(panels) :]:
        empty.axis("off")
    figure.suptitle(f"{title}\n{note}" if note else title, fontsize="medium")
    return figure


def _draw_panel(axes: Any, panel: Drawing) -> None:
    end = 1
    for number_, curve in enumerate(panel.curves):
        colour = f"C{number_}"
        points = curve.group.series(panel.key, panel.scale)
        if points:
            last = curve.group.last_round
            _draw_curve(axes, points, _label(curve, panel), colour, 100 / last if panel.shares else 1)
            end = max(end, last)
        else:
            why = "nothing to show" if curve.group.runs else "not run"
            axes.plot([], [], color=colour, label=f"{curve.group.label}: {why}")
    right = 100 if panel.shares else end
    for number_, curve in enumerate(panel.curves):
        if curve.printed is not None:  # at the right edge, where the paper's own curves end
            axes.plot([right], [curve.printed], "D", color=f"C{number_}", markersize=6, clip_on=False, zorder=5)
    for style, level in zip(LEVEL_STYLES, panel.levels, strict=False):
        _draw_level(axes, level, style, right)
    axes.set(title=panel.title, xlabel="percent of its training" if panel.shares else "round", ylabel=panel.ylabel)
    if not panel.zoomed:
        axes.set_ylim(0, 102)
    axes.grid(alpha=0.3)
    axes.set_xlim(0, right)
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.legend(fontsize="x-small", loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, frameon=False)


def _draw_curve(axes: Any, points: Sequence[Point], label: str, colour: str, unit: float) -> None:
    """The mean, and a band of one standard deviation to either side; `unit` is what a round is on the axis."""
    x = [point.round * unit for point in points]
    axes.plot(x, [point.mean for point in points], color=colour, label=label, linewidth=1.4)
    axes.fill_between(x, [each.low for each in points], [each.high for each in points], color=colour, alpha=0.2, lw=0)


def _draw_level(axes: Any, level: Curve, style: str, right: float) -> None:
    best = level.group.result("best_test_accuracy")
    if best is not None:
        axes.axhline(best, color="0.35", linestyle=style, linewidth=1, label=f"{level.group.label}: {best:.1f}")
    if level.printed is not None:
        axes.plot([right], [level.printed], "D", color="0.35", markersize=5, clip_on=False, zorder=5)


def _label(curve: Curve, panel: Drawing) -> str:
    if not panel.bytes_too:
        return curve.group.label
    moved = [
        up + down
        for run in curve.group.runs
        for record in run.rounds
        if (up := number(record.get("bytes_up"))) is not None and (down := number(record.get("bytes_down"))) is not None
    ]
    return f"{curve.group.label} ({sum(moved) / len(moved) / 1e6:.1f} MB a round)" if moved else curve.group.label


def save(figure: Figure, directory: Path, name: str) -> str:
    """Write NAME.png and NAME.svg; the SVG as text, for a page."""
    replace_file(directory / f"{name}.png", lambda part: figure.savefig(part, dpi=110, format="png"))
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    replace_text(directory / f"{name}.svg", text.getvalue())
    return text.getvalue()


def save_as(figure: Figure, file: Path) -> None:
    """Write one file, in the format that its name ends with."""
    metadata = {"Date": None} if file.suffix == ".svg" else None
    replace_file(file, lambda part: figure.savefig(part, dpi=110, format=file.suffix[1:], metadata=metadata))


def write_page(page: Path, title: str, note: str, figures: Sequence[tuple[str, str]]) -> None:
    """One file with every SVG inside it, so that it can be sent to someone."""
    parts = []
    for number_, (heading, svg) in enumerate(figures):
        # Names within a drawing are its own: on one page two drawings must not share them.
        picture = svg[svg.index("<svg") :]
        for mark in ('id="', 'href="#', "url(#"):
            picture = picture.replace(mark, f"{mark}f{number_}-")
        parts.append(f"<h2>{html.escape(heading)}</h2>\n<figure>{picture}</figure>")
    body = "\n".join(parts)
    replace_text(
        page,
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        f"<style>{STYLE}</style></head>\n<body>\n<h1>{html.escape(title)}</h1>\n<p>{html.escape(note)}</p>\n"
        f"{body}\n</body>\n</html>\n",
    )

"""The paper's two diagrams and its sheet of distorted pictures, drawn without a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABELED, UNLABELED, MODEL = "#f6c177", "#c4ccd8", "#9ccfd8"


def draw_ssfl() -> Figure:
    """A server with labels and clients without: models travel, pictures do not."""
    figure, axes = _canvas(7.5, 4.2)
    _box(axes, 5, 6.4, 3.4, 1.7, "server\nfew pictures, all labeled", LABELED)
    for number, x in enumerate((1.5, 3.8, 6.2, 8.5)):
        _box(
            axes,
            x,
            1.6,
            1.9,
            1.6,
            f"client {number + 1}\nno labels" if number < 3 else "client M\nno labels",
            UNLABELED,
        )
        _arrow(axes, (4.2 + 0.5 * number - 0.12, 5.5), (x - 0.15, 2.5), "model")
        _arrow(axes, (x + 0.15, 2.5), (4.2 + 0.5 * number + 0.12, 5.5), "")
    axes.text(7.35, 1.6, "…", fontsize=18, ha="center", va="center")
    axes.text(5, 0.2, "models go down and changes come up; no picture leaves its place", ha="center", fontsize=9)
    return figure


VANILLA = (
    ("server and clients train beside each other,\nfrom the same model", MODEL),
    ("server: labels", LABELED),
    ("clients: every batch labeled\nby the model in training", UNLABELED),
    ("average of server and clients\nis the next model", MODEL),
)
ALTERNATE = (
    ("1  server fine-tunes the average on labels", LABELED),
    ("2  the fine-tuned model is sent", MODEL),
    ("3  clients label all pictures once with it,\nkeep the sure ones, train E epochs", UNLABELED),
    ("4  average of the clients", MODEL),
)


def draw_semifl() -> Figure:
    """(a) Training in parallel, (b) in turns."""
    figure, axes = _canvas(11.5, 4.8, width=21)
    axes.text(5, 9.4, "(a) vanilla combination: in parallel", ha="center", weight="bold")
    _box(axes, 5, 7.8, 7, 1.5, VANILLA[0][0], VANILLA[0][1])
    _box(axes, 2.4, 4.8, 3.6, 1.5, VANILLA[1][0], VANILLA[1][1])
    _box(axes, 7.3, 4.8, 4.8, 1.5, VANILLA[2][0], VANILLA[2][1])
    _box(axes, 5, 1.8, 7, 1.5, VANILLA[3][0], VANILLA[3][1])
    for x in (2.4, 7.3):
        _arrow(axes, (x, 7.0), (x, 5.6), "")
        _arrow(axes, (x, 4.0), (x, 2.6), "")
    _arrow(axes, (1.4, 1.8), (1.4, 7.8), "next round", bend=-0.55)
    axes.text(16, 9.4, "(b) alternate training (SemiFL)", ha="center", weight="bold")
    for place, (text, colour) in enumerate(ALTERNATE):
        y = 7.9 - 2.1 * place
        _box(axes, 16, y, 7.6, 1.45, text, colour)
        if place:
            _arrow(axes, (16, y + 1.36), (16, y + 0.76), "")
    _arrow(axes, (12.1, 1.6), (12.1, 7.9), "next round", bend=-0.4)
    return figure


def draw_distortions(original: Any, rows: Sequence[tuple[str, Sequence[Any], Sequence[str]]]) -> Figure:
    """One line of pictures for each operation, each at a rising magnitude, beside the picture itself."""
    from matplotlib.figure import Figure

    columns = 1 + max(len(pictures) for _, pictures, _ in rows)
    figure = Figure(figsize=(1.25 * columns + 1.2, 1.42 * len(rows)), layout="constrained")
    grid = figure.subplots(len(rows), columns, squeeze=False)
    for line, (name, pictures, captions) in zip(grid, rows, strict=True):
        _picture(line[0], original, "original")
        line[0].set_ylabel(name, rotation=0, ha="right", va="center", fontsize=9)
        for place, (picture, caption) in enumerate(zip(pictures, captions, strict=True), 1):
            _picture(line[place], picture, caption)
        for empty in line[1 + len(pictures) :]:
            empty.axis("off")
    return figure


def _picture(axes: Any, picture: Any, caption: str) -> None:
    axes.imshow(picture, interpolation="nearest")
    axes.set(xticks=[], yticks=[])
    axes.set_title(caption, fontsize=7, pad=2)


def _canvas(inches: float, height: float, width: float = 10) -> tuple[Figure, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(inches, height), layout="constrained")
    axes = figure.subplots()
    axes.set(xlim=(-0.8 if width > 10 else 0, width), ylim=(-0.3, 10 if width > 10 else 8))
    axes.axis("off")
    return figure, axes


def _box(axes: Any, x: float, y: float, width: float, height: float, text: str, colour: str) -> None:
    from matplotlib.patches import FancyBboxPatch

    corner = (x - width / 2, y - height / 2)
    style = "round,pad=0.05,rounding_size=0.2"
    axes.add_patch(FancyBboxPatch(corner, width, height, boxstyle=style, facecolor=colour, edgecolor="0.3"))
    axes.text(x, y, text, ha="center", va="center", fontsize=9)


def _arrow(axes: Any, start: tuple[float, float], end: tuple[float, float], text: str, bend: float = 0.0) -> None:
    line = {"arrowstyle": "-|>", "color": "0.3", "linewidth": 1.1, "connectionstyle": f"arc3,rad={bend}"}
    axes.annotate("", xy=end, xytext=start, arrowprops=line)
    if text:
        x, y = (start[0] + end[0]) / 2 - 0.1 + 3 * bend, (start[1] + end[1]) / 2
        axes.text(x, y, text, fontsize=8, ha="right", va="center", rotation=90 if bend else 0, color="0.3")

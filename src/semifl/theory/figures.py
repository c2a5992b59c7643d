"""The pictures: rates, the critical region, and the illustration in the plane; `canvas` alone imports matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semifl.durable import replace_file, replace_text
from semifl.theory.critical import CriticalSweep, crossing
from semifl.theory.demo import Scene
from semifl.theory.kernel import Floats
from semifl.theory.rates import Slope
from semifl.theory.settings import Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLOURS = {"semi-supervised": "C0", "supervised": "C1"}


def canvas(panels: int, width: float = 4.2, height: float = 4.4) -> tuple[Figure, list[Any]]:
    """A figure with so many panels, at most three in a row."""
    from matplotlib.figure import Figure  # here, because importing matplotlib takes longer than most commands

    columns = min(panels, 3)
    rows = -(-panels // columns)
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for empty in axes[panels:]:
        empty.axis("off")
    return figure, axes[:panels]


def save(figure: Figure, directory: Path, name: str) -> str:
    """Write NAME.png and NAME.svg, and give the SVG as text for a page."""
    replace_file(directory / f"{name}.png", lambda part: figure.savefig(part, dpi=110, format="png"))
    from io import StringIO

    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    replace_text(directory / f"{name}.svg", text.getvalue())
    return text.getvalue()


def draw_rates(found: Sequence[Slope]) -> Figure:
    """Mean risk by size, the fitted line, and the predicted slope through the first point."""
    settings = list(dict.fromkeys(slope.setting for slope in found))
    figure, panels = canvas(len(settings))
    for axes, setting in zip(panels, settings, strict=True):
        for slope in found:
            if slope.setting == setting:
                _draw_slope(axes, slope)
        p = setting.problem
        numbers = f"α={p.alpha:g} q={p.q:g} d={p.d} s={p.s:g} v={p.v:g}"
        axes.set_title(numbers if "=" in setting.name else f"{setting.name}: {numbers}", fontsize="medium")
        axes.set_xscale("log", base=2)
        axes.set(yscale="log", xlabel="points: unlabeled, or labeled", ylabel="excess risk")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="x-small", loc="upper center", bbox_to_anchor=(0.5, -0.16))
    return figure


def _draw_slope(axes: Any, slope: Slope) -> None:
    n = np.asarray(slope.sizes, dtype=float)
    mean = slope.risks.mean(axis=1)
    spread = slope.risks.std(axis=1, ddof=1) / np.sqrt(slope.risks.shape[1])
    colour = COLOURS[slope.kind]
    label = f"{slope.kind}: fitted {slope.fitted:.2f} [{slope.low:.2f}, {slope.high:.2f}]"
    axes.errorbar(n, mean, 1.96 * spread, fmt="o", markersize=4, color=colour, label=label)
    middle = np.exp(np.log(n).mean())
    centre = np.exp(np.log(mean).mean())
    axes.plot(n, centre * (n / middle) ** -slope.fitted, color=colour, linewidth=1)
    predicted = mean[0] * (n / n[0]) ** -slope.predicted
    axes.plot(n, predicted, "--", color=colour, linewidth=1, label=f"predicted bound's slope {slope.predicted:.2f}")


def draw_critical(settings: Sequence[Setting], sweep: CriticalSweep, gains: dict[Setting, dict[int, Floats]]) -> Figure:
    """The observed gain by ζ, and the predicted critical value."""
    figure, panels = canvas(len(settings))
    for axes, setting in zip(panels, settings, strict=True):
        for shade, (n_u, gain) in zip(np.linspace(0.35, 1, len(gains[setting])), gains[setting].items(), strict=True):
            observed = crossing(sweep.zetas, gain)
            seen = "no crossing" if observed is None else f"crossing {observed:.2f}"
            label = f"$n_u$ = {n_u}: {seen}"
            axes.plot(sweep.zetas, gain, "o-", markersize=3, color="C0", alpha=float(shade), label=label)
        critical = setting.exponents.critical_zeta
        axes.axvline(critical, color="C3", linestyle="--", label=f"predicted critical ζ = {critical:.2f}")
        axes.axhline(1, color="0.4", linewidth=1)
        axes.set(yscale="log", xlabel="ζ   (labels = $n_u^ζ$)", ylabel="risk of labels alone / with unlabeled")
        axes.set_title(setting.name, fontsize="medium")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="x-small", loc="upper center", bbox_to_anchor=(0.5, -0.16))
    return figure


def draw_demo(scene: Scene) -> Figure:
    """Labels alone; what augmentation carries where; labels and augmented points together."""
    figure, (before, carry, after) = canvas(3, 4.4, 4.2)
    _regions(before, scene, scene.before_classes)
    _points(before, scene.labeled[0], scene.labeled[1], "o")
    before.set_title(f"labels alone: excess risk {scene.before:.4f}", fontsize="medium")
    _regions(carry, scene, None)
    _points(carry, scene.chosen, scene.pseudo, ".", alpha=0.35)
    for start, end, label in zip(
        scene.chosen[scene.shown], scene.carried[scene.shown], scene.pseudo[scene.shown], strict=True
    ):
        arrow = {"arrowstyle": "->", "color": _colour(label), "alpha": 0.5, "linewidth": 0.7}
        carry.annotate("", xy=end, xytext=start, arrowprops=arrow)
    carry.set_title(
        f"{len(scene.chosen)} confident unlabeled points, and where\naugmentation carries {len(scene.shown)} of them",
        fontsize="medium",
    )
    _regions(after, scene, scene.after_classes)
    _points(after, scene.carried, scene.pseudo, ".", alpha=0.35)
    _points(after, scene.labeled[0], scene.labeled[1], "o")
    after.set_title(f"with augmented points: excess risk {scene.after:.4f}", fontsize="medium")
    for axes in (before, carry, after):
        axes.axvline(0.5, color="black", linestyle="--", linewidth=1)
        axes.set(xlim=(0, 1), ylim=(0, 1), xlabel="$x_1$", ylabel="$x_2$", aspect="equal")
    return figure


def _colour(label: int) -> str:
    return "C3" if label else "C0"


def _points(axes: Any, x: Floats, labels: Any, marker: str, alpha: float = 1.0) -> None:
    edge = {"edgecolors": "black", "linewidths": 0.6} if marker == "o" else {"linewidths": 0}
    axes.scatter(x[:, 0], x[:, 1], s=22, marker=marker, c=[_colour(label) for label in labels], alpha=alpha, **edge)


def _regions(axes: Any, scene: Scene, classes: Any) -> None:
    if classes is not None:
        axes.imshow(classes, extent=(0, 1, 0, 1), origin="lower", cmap="coolwarm", alpha=0.3, vmin=0, vmax=1)
    for edge in scene.core:
        axes.axvline(edge, color="0.5", linestyle=":", linewidth=1)

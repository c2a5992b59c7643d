"""The picture of a run: accuracy by round with the labels-only line, and what the clients believed."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from semifl.durable import replace_file
from semifl.records.metrics import WORDS, metric_of
from semifl.records.record import JSON, number
from semifl.records.verdict import labels_only
from semifl.report.reading import read_run


def draw_curves(directory: Path) -> Path:
    """Draw a run directory's rounds into `curves.png` beside them."""
    from matplotlib.figure import Figure  # here, because importing matplotlib takes longer than most commands

    run = read_run(directory)
    metric = metric_of(run.settings)
    final, only = number(run.outcome.get(metric)), labels_only(run.outcome, metric)
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    accuracy, labels = figure.subplots(1, 2)
    _curve(accuracy, run.rounds, metric, run.method, 1)
    if final is not None:
        last = run.rounds[-1]["round"] + 1 if run.rounds else 1
        accuracy.plot(last, final, "o", color="C0", label=f"final: {final:.1f} %")
    if only is not None:
        accuracy.axhline(only, color="0.4", linestyle="--", label=f"labels only: {only:.1f} %")
    accuracy.set(title=f"Test {WORDS[metric]}", xlabel="round", ylabel="percent")
    _curve(labels, run.rounds, "label_ratio", "confident (label ratio)", 100)
    _curve(labels, run.rounds, "pseudo_accuracy", "pseudo-labels right", 1)
    _curve(labels, run.rounds, "confident_accuracy", "confident ones right", 1)
    accuracy.set_ylim(top=min(accuracy.get_ylim()[1], 102))  # there is no more than all of them
    labels.set(title="What the clients believe", xlabel="round", ylabel="percent", ylim=(0, 102))
    for axes in (accuracy, labels):
        axes.grid(alpha=0.3)
        axes.xaxis.get_major_locator().set_params(integer=True)
        if axes.get_legend_handles_labels()[0]:  # a method without clients believes nothing
            # Below the drawing, where it covers no point of any curve.
            axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.18), ncols=3, fontsize="small", frameon=False)
    path = directory / "curves.png"
    replace_file(path, partial(figure.savefig, format="png", dpi=110))
    return path


def _curve(axes: Any, rounds: list[JSON], key: str, label: str, scale: float) -> None:
    points = [(each["round"], scale * value) for each in rounds if (value := number(each.get(key))) is not None]
    if points:
        axes.plot(*zip(*points, strict=True), label=label)

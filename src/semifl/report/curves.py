"""The picture of a run: accuracy by round with the labels-only line, and what the clients believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def draw_curves(directory: Path) -> Path:
    """Draw a run directory's rounds into `curves.png` beside them."""
    from matplotlib.figure import Figure  # here, because importing matplotlib takes longer than most commands

    rounds = [json.loads(line) for line in (directory / "rounds.jsonl").read_text().splitlines()]
    result = json.loads((directory / "result.json").read_text())
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    accuracy, labels = figure.subplots(1, 2)
    _curve(accuracy, rounds, "accuracy", result["method"], 1)
    last = rounds[-1]["round"] + 1 if rounds else 1
    accuracy.plot(last, result["accuracy"], "o", color="C0", label=f"final: {result['accuracy']:.1f} %")
    if result["labels_only_accuracy"] is not None:
        only = result["labels_only_accuracy"]
        accuracy.axhline(only, color="0.4", linestyle="--", label=f"labels only: {only:.1f} %")
    accuracy.set(title="Test accuracy", xlabel="round", ylabel="percent")
    _curve(labels, rounds, "label_ratio", "confident (label ratio)", 100)
    _curve(labels, rounds, "pseudo_accuracy", "pseudo-labels right", 1)
    _curve(labels, rounds, "confident_accuracy", "confident ones right", 1)
    labels.set(title="What the clients believe", xlabel="round", ylabel="percent", ylim=(0, 102))
    for axes in (accuracy, labels):
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[0]:  # a method without clients believes nothing
            axes.legend(loc="lower right", fontsize="small")
    path = directory / "curves.png"
    figure.savefig(path, dpi=110)
    return path


def _curve(axes: Any, rounds: list[dict[str, Any]], key: str, label: str, scale: float) -> None:
    points = [(each["round"], scale * each[key]) for each in rounds if each.get(key) is not None]
    if points:
        axes.plot(*zip(*points, strict=True), label=label)

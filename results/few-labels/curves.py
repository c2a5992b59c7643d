"""Learning curves of a table's runs: `python results/few-labels/curves.py RUNS OUT.png > curves.csv`.

A line for each method, cell and round: accuracy in percent, mean over seeds, and the seconds that a round took.
The picture has a row of panels for each number of labels, with the labels only of the method that makes most of them.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from statistics import mean

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from collect import Row, rows_of

NAMES = {"semifl": "SemiFL", "fl2": "(FL)²", "balanced": "balanced"}
PARTITIONS = {"iid": "IID", "classes": "K =", "dirichlet": "Dirichlet"}


def curve(rows: list[Row], key: str) -> list[float]:
    """Mean over seeds, round by round."""
    return [mean(values) for values in zip(*(each[key] for each in rows), strict=True)]


def panel(axes: plt.Axes, cell: tuple[int, str], rows: list[Row]) -> None:
    for method, name in NAMES.items():
        if mine := [each for each in rows if each["method"] == method]:
            values = curve(mine, "rounds")
            axes.plot(range(1, len(values) + 1), values, label=f"{name} ({len(mine)} seeds)")
    alone = mean(each["labels_only"] for each in rows if each["method"] == "balanced")
    axes.axhline(alone, color="grey", linestyle="--", label="labels only, of balanced")
    kind, *values = cell[1].split()
    axes.set_title(f"{cell[0]} labels, {' '.join([PARTITIONS[kind], *values[:1]])}")
    axes.set_xlabel("round")
    axes.xaxis.get_major_locator().set_params(integer=True)


def main() -> None:
    rows = rows_of(Path(sys.argv[1]))
    cells = sorted({(each["labels"], each["partition"]) for each in rows})
    lines = len({labels for labels, _ in cells})
    size = 3.2 * len(cells) / lines, 3.0 * lines
    figure, grid = plt.subplots(
        lines, len(cells) // lines, figsize=size, sharey="row", squeeze=False, layout="constrained"
    )
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["method", "labels", "partition", "seeds", "round", "accuracy", "seconds"])
    for axes, cell in zip(grid.flat, cells, strict=True):
        here = [each for each in rows if (each["labels"], each["partition"]) == cell]
        panel(axes, cell, here)
        for method in dict.fromkeys(each["method"] for each in here):
            mine = [each for each in here if each["method"] == method]
            pairs = zip(curve(mine, "rounds"), curve(mine, "seconds"), strict=True)
            for index, (accuracy, seconds) in enumerate(pairs, 1):
                writer.writerow([method, *cell, len(mine), index, f"{accuracy:.2f}", f"{seconds:.2f}"])
    for axes in grid[:, 0]:
        axes.set_ylabel("test accuracy, %")
    grid[-1, 0].legend(loc="lower right", fontsize="small")
    figure.savefig(sys.argv[2], dpi=80)


if __name__ == "__main__":
    main()

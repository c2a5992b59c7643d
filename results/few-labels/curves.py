"""Learning curves of clothes: `python curves.py RUNS > curves.csv` collects them, `python curves.py` draws curves.png.

The file has a line for each method, cell and round: accuracy in percent, mean over seeds, and seconds of a round.
The picture has a row of panels for each number of labels, with the labels only of `balanced`, which makes most of them.
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
from tables import HERE, PARTITIONS, Cell, Runs, name

NAMES = {
    "semifl": "SemiFL, five epochs",
    "semifl_released": "SemiFL, best setting",
    "fl2": "(FL)²",
    "balanced": "balanced",
}


def mean_by_round(rows: list[Row], key: str) -> list[float]:
    return [mean(values) for values in zip(*(each[key] for each in rows), strict=True)]


def collect(runs: Path) -> None:
    rows = rows_of(runs)
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["method", "labels", "partition", "seeds", "round", "accuracy", "seconds"])
    for method, *cell in dict.fromkeys((each["method"], each["labels"], each["partition"]) for each in rows):
        mine = [each for each in rows if [each["method"], each["labels"], each["partition"]] == [method, *cell]]
        pairs = zip(mean_by_round(mine, "rounds"), mean_by_round(mine, "seconds"), strict=True)
        for index, (accuracy, seconds) in enumerate(pairs, 1):
            writer.writerow([method, *cell, len(mine), index, f"{accuracy:.2f}", f"{seconds:.2f}"])


def panel(axes: plt.Axes, cell: Cell, lines: list[dict[str, str]], alone: float) -> None:
    for method, label in NAMES.items():
        mine = [each for each in lines if (each["method"], each["labels"], each["partition"]) == (method, *cell)]
        if mine:
            rounds = [int(each["round"]) for each in mine]
            axes.plot(rounds, [float(each["accuracy"]) for each in mine], label=f"{label} ({mine[0]['seeds']} seeds)")
    axes.axhline(alone, color="gray", linestyle="--", label="labels only, of balanced")
    axes.set_title(name(cell))
    axes.set_xlabel("round")
    axes.xaxis.get_major_locator().set_params(integer=True)


def draw() -> None:
    lines = list(csv.DictReader((HERE / "curves.csv").read_text(encoding="utf-8").splitlines()))
    runs = Runs("clothes.csv")
    cells = runs.cells("balanced")
    columns = len(PARTITIONS)
    size = 3.2 * columns, 3.0 * len(cells) / columns
    figure, grid = plt.subplots(len(cells) // columns, columns, figsize=size, sharey="row", layout="constrained")
    for axes, cell in zip(grid.flat, cells, strict=True):
        panel(axes, cell, lines, mean(runs.labels_only[("balanced", cell)].values()))
    for axes in grid[:, 0]:
        axes.set_ylabel("test accuracy, %")
    grid[-1, 0].legend(loc="lower right", fontsize="small")
    figure.savefig(HERE / "curves.png", dpi=80)


if __name__ == "__main__":
    collect(Path(sys.argv[1])) if len(sys.argv) == 2 else draw()

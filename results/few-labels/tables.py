"""The tables of this page from its CSV files: `python results/few-labels/tables.py`.

Accuracy is a mean over seeds with the sample deviation; differences are paired over seeds. Brackets are 95 % intervals
(Student's, over seeds). A mean over cells is taken seed by seed first.
"""

from __future__ import annotations

import csv
from math import isnan, nan
from pathlib import Path
from statistics import mean, stdev

from scipy.stats import t

HERE = Path(__file__).resolve().parent
NAMES = {
    "semifl": "SemiFL, five epochs",
    "semifl_released": "SemiFL, best setting",
    "fl2": "(FL)²",
    "fl2_short": "(FL)², short warm-up",
    "balanced": "balanced",
}
PARTITIONS = {"iid": "IID", "classes 2": "K = 2", "dirichlet 0.1 10": "Dir(0.1)", "dirichlet 0.3 10": "Dir(0.3)"}
FEW = {"digits.csv": ("10", "30"), "clothes.csv": ("40",)}  # at most five labels of each class

Seeds = dict[str, float]  # by seed
Cell = tuple[str, str]  # labels and partition


class Runs:
    """Accuracy, and accuracy of labels only, by method, cell and seed."""

    def __init__(self, *files: str) -> None:
        self.accuracy: dict[tuple[str, Cell], Seeds] = {}
        self.labels_only: dict[tuple[str, Cell], Seeds] = {}
        for file in files:
            for row in csv.DictReader((HERE / file).read_text(encoding="utf-8").splitlines()):
                key = row["method"], (row["labels"], row["partition"])
                self.accuracy.setdefault(key, {})[row["seed"]] = float(row["accuracy"])
                if not isnan(alone := float(row["labels_only"] or "nan")):
                    self.labels_only.setdefault(key, {})[row["seed"]] = alone

    def cells(self, method: str) -> list[Cell]:
        return sorted((cell for name, cell in self.accuracy if name == method), key=lambda c: (int(c[0]), order(c[1])))


def order(partition: str) -> int:
    return list(PARTITIONS).index(partition) if partition in PARTITIONS else -1


def half_width(values: list[float]) -> float:
    if len(values) < 2:
        return nan
    return float(t.ppf(0.975, len(values) - 1)) * stdev(values) / len(values) ** 0.5


def level(seeds: Seeds | None) -> str:
    if not seeds:
        return "–"
    values = list(seeds.values())
    half = half_width(values)
    return f"{mean(values):.1f} ({stdev(values):.1f}) [{mean(values) - half:.1f}, {mean(values) + half:.1f}]"


def paired(mine: Seeds | None, theirs: Seeds | None) -> Seeds | None:
    return {seed: mine[seed] - theirs[seed] for seed in mine if seed in theirs} if mine and theirs else None


def gain(seeds: Seeds | None) -> str:
    if not seeds:
        return "–"
    values = list(seeds.values())
    half = half_width(values)
    return signed(f"{mean(values):+.1f} [{mean(values) - half:+.1f}, {mean(values) + half:+.1f}]")


def signed(text: str) -> str:
    return text.replace("-", "−")


def over_cells(some: list[Seeds]) -> Seeds:
    """Return the mean over cells, for the seeds that all of them have."""
    return {seed: mean(each[seed] for each in some) for seed in some[0] if all(seed in each for each in some)}


def table(header: list[str], rows: list[list[str]]) -> None:
    print("\n| " + " | ".join(header) + " |")
    print("|" + "---|" * len(header))
    for row in rows:
        print("| " + " | ".join(row) + " |")


def name(cell: Cell) -> str:
    return f"{cell[0]} labels, {PARTITIONS.get(cell[1], cell[1])}"


def levels(runs: Runs, methods: list[str]) -> None:
    rows = []
    for cell in runs.cells("balanced"):
        alone = level(runs.labels_only.get(("balanced", cell)))
        rows.append([name(cell), *(level(runs.accuracy.get((method, cell))) for method in methods), alone])
    table(["", *(NAMES[method] for method in methods), "labels only, of balanced"], rows)


def gains(runs: Runs, rivals: list[str]) -> None:
    """What clients bring to each method, and balanced's distance to each rival."""
    rows = []
    for cell in runs.cells("balanced"):
        mine = runs.accuracy.get(("balanced", cell))
        ours = gain(paired(mine, runs.labels_only.get(("balanced", cell))))
        against = [gain(paired(mine, runs.accuracy.get((rival, cell)))) for rival in rivals]
        alone = [gain(paired(runs.accuracy.get((r, cell)), runs.labels_only.get((r, cell)))) for r in rivals]
        rows.append([name(cell), ours, *against, *alone])
    distances = [f"balanced − {NAMES[rival]}" for rival in rivals]
    table(["", "**what clients bring**", *distances, *(f"{NAMES[r]} − its labels only" for r in rivals)], rows)


def headline() -> None:
    """Balanced's distance to each rival, over all cells with at most five labels of each class."""
    rows = []
    for rival in ("semifl_released", "fl2", "semifl"):
        found: list[Seeds] = []
        for file, few in FEW.items():
            runs = Runs(file, "semifl-best.csv")
            for cell in runs.cells("balanced"):
                if cell[0] in few:
                    mine, theirs = runs.accuracy[("balanced", cell)], runs.accuracy.get((rival, cell))
                    found += [each] if (each := paired(mine, theirs)) else []
        rows.append([f"balanced − {NAMES[rival]}", gain(over_cells(found)), str(len(found))])
    table(["few labels, mean over digits, clothes and partitions", "difference", "cells"], rows)


def main() -> None:
    headline()
    for file in ("digits.csv", "clothes.csv", "sites.csv"):
        runs = Runs(file, "semifl-best.csv")
        there = {method for method, _ in runs.accuracy}
        levels(runs, [method for method in NAMES if method in there])
        gains(runs, [rival for rival in ("semifl_released", "fl2", "fl2_short", "semifl") if rival in there])
    equal, ours = Runs("equal-steps.csv"), Runs("digits.csv")
    rows = []
    for method in ("semifl", "fl2"):
        for cell in equal.cells(method):
            theirs = equal.accuracy[(method, cell)]
            distance = paired(ours.accuracy[("balanced", cell)], theirs)
            alone = paired(theirs, equal.labels_only.get((method, cell)))
            rows.append([f"{NAMES[method].split(',')[0]}, {name(cell)}", level(theirs), gain(distance), gain(alone)])
    table(["as many steps of the server as balanced", "accuracy", "balanced − it", "it − its labels only"], rows)


if __name__ == "__main__":
    main()

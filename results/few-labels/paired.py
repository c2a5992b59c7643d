"""Two methods seed by seed: `python results/few-labels/paired.py FILE METHOD FILE METHOD`, files of `collect.py`.

For each cell that both have: mean accuracy of either, their difference with its 95 % interval, and the worst seed's.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from statistics import mean

from collect import interval

Cell = tuple[str, str]  # labels and partition


def accuracies(file: str, method: str) -> dict[Cell, dict[str, float]]:
    """By cell and seed."""
    found: dict[Cell, dict[str, float]] = {}
    for row in csv.DictReader(Path(file).read_text(encoding="utf-8").splitlines()):
        if row["method"] == method:
            found.setdefault((row["labels"], row["partition"]), {})[row["seed"]] = float(row["accuracy"])
    return found


def main() -> None:
    first_file, first, second_file, second = sys.argv[1:]
    mine, theirs = accuracies(first_file, first), accuracies(second_file, second)
    for cell in (cell for cell in mine if cell in theirs):
        seeds = [seed for seed in mine[cell] if seed in theirs[cell]]
        left, right = ([each[cell][seed] for seed in seeds] for each in (mine, theirs))
        gains = [a - b for a, b in zip(left, right, strict=True)]
        print(*cell, f"{mean(left):.1f} − {mean(right):.1f}:", interval(gains), f"worst {min(gains):+.1f}")


if __name__ == "__main__":
    main()

"""Two methods seed by seed, from files of `collect.py`:

python results/few-labels/paired.py balanced digits.csv,clothes.csv semifl digits.csv,clothes.csv --labels 10,30,40

For each cell that both have, and for the mean over these cells: accuracy of either, their difference with its 95 %
interval over seeds, and the worst seed's.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from statistics import mean

from collect import interval

Seeds = dict[str, float]  # accuracy by seed
Cell = tuple[str, str]  # labels and partition


def cells(method: str, files: str, labels: str) -> dict[Cell, Seeds]:
    found: dict[Cell, Seeds] = {}
    for file in files.split(","):
        for row in csv.DictReader(Path(file).read_text(encoding="utf-8").splitlines()):
            if row["method"] == method and (not labels or row["labels"] in labels.split(",")):
                found.setdefault((row["labels"], row["partition"]), {})[row["seed"]] = float(row["accuracy"])
    return found


def over_cells(some: list[Seeds]) -> Seeds:
    """Mean accuracy over the cells, for the seeds that all of them have."""
    return {seed: mean(each[seed] for each in some) for seed in some[0] if all(seed in each for each in some)}


def compare(name: str, mine: Seeds, theirs: Seeds) -> None:
    pairs = [(mine[seed], theirs[seed]) for seed in mine if seed in theirs]
    left, right = (mean(each) for each in zip(*pairs, strict=True))
    gains = [a - b for a, b in pairs]
    print(f"{name}: {left:.1f} − {right:.1f} = {interval(gains)}, worst {min(gains):+.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("method", "files", "other_method", "other_files"):
        parser.add_argument(name)
    parser.add_argument("--labels", default="", help="only cells with so many")
    given = parser.parse_args()
    mine = cells(given.method, given.files, given.labels)
    theirs = cells(given.other_method, given.other_files, given.labels)
    both = [cell for cell in mine if cell in theirs]
    for cell in both:
        compare(" labels, ".join(cell), mine[cell], theirs[cell])
    compare("mean over cells", *(over_cells([some[cell] for cell in both]) for some in (mine, theirs)))


if __name__ == "__main__":
    main()

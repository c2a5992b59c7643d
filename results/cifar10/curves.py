"""`curves.csv` as a picture beside it: `python results/cifar10/curves.py`, after collect.py.

Above, test accuracy round by round; below, what SemiFL's clients believe: how many pictures they are confident of, and
how many of those labels are right. A column for each number of labels, seeds as lines of one colour.
"""

from __future__ import annotations

import csv
from collections import defaultdict

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from collect import HERE, WORLDS

Curves = dict[tuple[str, str], list[dict[str, str]]]  # the rounds of a cell and seed


def curves() -> Curves:
    found: Curves = defaultdict(list)
    with (HERE / "curves.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            found[row["cell"].removeprefix("cifar10-"), row["seed"]].append(row)
    return found


def draw(axes: plt.Axes, found: Curves, cell: str, key: str, factor: float = 1.0, **style: str) -> None:
    """Every seed of a cell that has been run; only the first is named."""
    for seed, rounds in ((seed, rounds) for (name, seed), rounds in found.items() if name == cell):
        measured = {int(each["round"]): float(each[key]) * factor for each in rounds if each[key]}
        own = style if seed == "0" else {**style, "label": "_"}
        axes.plot(list(measured), list(measured.values()), **own)


def main() -> None:
    found = curves()
    figure, grid = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
    for column, labels in enumerate((4000, 250)):
        above, below = grid[:, column]
        for color, (world, word) in zip(("C0", "C1", "C2"), WORLDS.items(), strict=True):
            cell = f"{labels}-{world}"
            draw(above, found, cell, "accuracy", color=color, label=f"SemiFL, {word}")
            draw(below, found, cell, "label_ratio", 100, color=color, linestyle=":", label=f"{word}: confident")
            draw(below, found, cell, "confident_accuracy", color=color, label=f"{word}: right, of the confident")
        alone = [rounds[-1] for (name, _), rounds in found.items() if name == f"{labels}-partially-supervised"]
        for seed, last in enumerate(alone):
            above.axhline(float(last["accuracy"]), color="grey", linestyle="--", label="_" if seed else "labels alone")
        above.set_title(f"{labels:,} labels")
        below.set_xlabel("round")
        above.legend(fontsize="small")
    grid[0, 0].set_ylabel("test accuracy, %")
    grid[1, 0].set_ylabel("clients' pictures, %")
    figure.legend(*grid[1, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize="small")
    figure.savefig(HERE / "curves.png", dpi=80)


if __name__ == "__main__":
    main()

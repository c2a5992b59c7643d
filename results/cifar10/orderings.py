"""Each ordering of the paper's tables beside what `runs.csv` has: `python results/cifar10/orderings.py > orderings.md`.

The interval is 95 % of a difference of two accuracies, over other test pictures and other seeds: both parts, squared
and added. Pictures: two accuracies on the same 10,000 of them, taken as independent, which is too wide; more seeds do
not narrow it, for all are tested on these. Seeds: Student's, with the deviation of all cells of this label count that
have two seeds or more, because two seeds alone say next to nothing about theirs; it stands for methods, too, that have
one seed. Each interval is for itself: of forty, two are expected to miss.

Two things are said of each: whether the sign is the paper's, and whether its size is, that is, within the interval.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from math import hypot, sqrt
from statistics import mean, variance
from typing import NamedTuple

from collect import HERE, WORLDS
from scipy.stats import t as student

from semifl.studies.tables import paper_tables

TEST = 10_000  # pictures
LABELS = (4000, 250)


def claims() -> Iterator[tuple[str, str, str]]:
    """What the paper says is better than what: words, and two cells."""
    for labels in LABELS:
        for world, word in WORLDS.items():
            mine, where = f"{labels}-{world}", f"{labels:,} labels, {word}"
            yield f"SemiFL above labels alone: {where}", mine, f"{labels}-partially-supervised"
            yield f"SemiFL above FedMatch: {where}", mine, f"{mine}-fedmatch"
            yield f"SemiFL above FedRGD: {where}", mine, f"{mine}-fedrgd"
            yield f"labels at the clients (FedAvg) above SemiFL: {where}", f"{world}-fedavg", mine
        yield f"IID above K = 2: {labels:,} labels", f"{labels}-iid", f"{labels}-k2"
        yield f"Dir(0.3) above K = 2: {labels:,} labels", f"{labels}-dir0.3", f"{labels}-k2"
        yield f"FixMatch in one place above SemiFL: {labels:,} labels, IID", f"{labels}-fixmatch", f"{labels}-iid"
        yield f"all labels in one place above SemiFL: {labels:,} labels, IID", "fully-supervised", f"{labels}-iid"
    for world in ("iid", "k2"):
        mine, word = f"4000-{world}", WORLDS[world]
        yield f"fine-tuning the global model helps: {word}", f"{mine}-nomix", f"{mine}-parallel-global"
        yield f"labels once, not batch by batch: {word}", f"{mine}-nomix", f"{mine}-alternate-batch"
        yield f"SemiFL's round above FedAvg + FixMatch's: {word}", f"{mine}-nomix", f"{mine}-fedavg-fixmatch"
        yield f"both parts above neither: {word}", f"{mine}-nomix", f"{mine}-parallel-batch"
        yield f"Mixup helps: {word}", mine, f"{mine}-nomix"


def runs() -> dict[str, dict[int, float]]:
    """Accuracy of finished runs, by cell and seed."""
    found: dict[str, dict[int, float]] = {}
    with (HERE / "runs.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["finished"] == "yes":
                found.setdefault(row["cell"], {})[int(row["seed"])] = float(row["accuracy"])
    return found


def printed() -> dict[str, float]:
    """The paper's accuracy, by cell."""
    return {
        cell.name.removesuffix("-released"): float(cell.value.split()[0])  # FedMatch and FedRGD are run as they are
        for table in paper_tables("small")
        for cell in table.cells
        if cell.value and cell.name.startswith("cifar10-")
    }


class Spread(NamedTuple):
    """How far seeds of one cell lie apart."""

    deviation: float
    freedom: int  # degrees of it


def spread(found: dict[str, dict[int, float]], labels: int) -> Spread:
    """Pooled over the cells of a label count that have several seeds; runs of another recipe are none of them."""
    cells = {f"cifar10-{name}" for _, *pair in claims() for name in pair if name.startswith(f"{labels}-")}
    several = [list(found[name].values()) for name in sorted(cells & found.keys())]
    several = [values for values in several if len(values) > 1]
    freedom = sum(len(values) - 1 for values in several)
    squares = sum(variance(values) * (len(values) - 1) for values in several)
    return Spread(sqrt(squares / freedom), freedom)


def interval(better: dict[int, float], worse: dict[int, float], seeds: Spread) -> tuple[float, float, int]:
    """Difference, half the width of its interval, and the number of seeds that both have."""
    shared = sorted(better.keys() & worse.keys())
    of_pictures = sum(p * (100 - p) for seed in shared for p in (better[seed], worse[seed])) / TEST
    by_pictures = 1.96 * sqrt(of_pictures / len(shared))
    by_seeds = student.ppf(0.975, seeds.freedom) * seeds.deviation * sqrt(2 / len(shared))
    return mean(better[seed] - worse[seed] for seed in shared), hypot(by_pictures, by_seeds), len(shared)


def sign(difference: float, half: float, theirs: float) -> str:
    if abs(difference) <= half:
        return "too small to tell"
    return "agrees" if difference * theirs > 0 else "**disagrees**"


def size(difference: float, half: float, theirs: float) -> str:
    """Of the paper's difference, as seen from here."""
    if abs(difference - theirs) <= half:
        return "as large"
    return "smaller" if difference * theirs < theirs**2 else "larger"


def main() -> None:
    found, paper = runs(), printed()
    seeds_of = {labels: spread(found, labels) for labels in LABELS}
    print("| the paper says | its difference | here [95 % interval] | seeds | sign | size |\n|---|---|---|---|---|---|")
    for words, *names in claims():
        better, worse = (f"cifar10-{name}" for name in names)
        if better not in found or worse not in found or not found[better].keys() & found[worse].keys():
            continue
        labels = next(each for each in LABELS if f"-{each}-" in better + worse)
        ours, half, seeds = interval(found[better], found[worse], seeds_of[labels])
        shown = f"{ours:+.1f} [{ours - half:+.1f}, {ours + half:+.1f}]"
        if better not in paper or worse not in paper:  # a pair that explains others
            print(f"| {words} | – | {shown} | {seeds} | | |")
            continue
        theirs = paper[better] - paper[worse]
        said = f"{sign(ours, half, theirs)} | {size(ours, half, theirs)}"
        print(f"| {words} | {theirs:+.1f} | {shown} | {seeds} | {said} |")


if __name__ == "__main__":
    main()

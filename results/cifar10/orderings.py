"""Each ordering of the paper's tables beside what `runs.csv` has: `python results/cifar10/orderings.py > orderings.md`.

The interval is 95 % of a difference of two accuracies on 10,000 test pictures, taken as independent: it speaks of
other pictures, and with one seed of nothing else. Where both have two seeds or more, theirs is shown if it is wider.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from math import sqrt

from collect import HERE, WORLDS

from semifl.report.comparison import paired
from semifl.studies.tables import paper_tables

TEST = 10_000  # pictures


def claims() -> Iterator[tuple[str, str, str]]:
    """What the paper says is better than what: words, and two cells."""
    for labels in (4000, 250):
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


def interval(better: dict[int, float], worse: dict[int, float]) -> tuple[float, float, int]:
    """Difference, half the width of its interval, and the number of seeds that both have."""
    seeds = sorted(better.keys() & worse.keys())
    variances = [sum(p * (100 - p) for p in (better[seed], worse[seed])) / TEST for seed in seeds]
    half = 1.96 * sqrt(sum(variances)) / len(seeds)
    by_seeds = paired(better, worse)
    assert by_seeds is not None
    if len(seeds) > 1:
        half = max(half, by_seeds.high - by_seeds.mean)
    return by_seeds.mean, half, len(seeds)


def verdict(difference: float, half: float, theirs: float) -> str:
    if abs(difference) <= half:
        return "too small to tell"
    return "agrees" if difference * theirs > 0 else "**disagrees**"


def main() -> None:
    found, paper = runs(), printed()
    print("| the paper says | its difference | here [95 % interval] | seeds | |\n|---|---|---|---|---|")
    for words, *names in claims():
        better, worse = (f"cifar10-{name}" for name in names)
        if better not in found or worse not in found or not found[better].keys() & found[worse].keys():
            continue
        theirs, (ours, half, seeds) = paper[better] - paper[worse], interval(found[better], found[worse])
        shown = f"{ours:+.1f} [{ours - half:+.1f}, {ours + half:+.1f}]"
        print(f"| {words} | {theirs:+.1f} | {shown} | {seeds} | {verdict(ours, half, theirs)} |")


if __name__ == "__main__":
    main()

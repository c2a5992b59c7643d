"""Time and arithmetic to a test accuracy that two SemiFL runs both reach, from their logs: which route is shorter?

`python benchmarks/time_to_accuracy.py PUBLISHED FAST` takes two run directories, finished or not. The accuracy is the
best that the worse of them has reached. Arithmetic is what a round needs by its record: labeled epochs, labelling, the
confident pictures' epochs in their views, BatchNorm statistics; testing is the experiment's and not counted. The clock
is the runs' own, testing included, so it says something only if both had the same machine to themselves.
"""

from __future__ import annotations

import sys
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

from measure import flops, report

from semifl.experiments.config import decode, read
from semifl.experiments.records import RunDirectory

CHANNELS, SIZE, CLASSES = 3, 32, 10  # of CIFAR-10


class Costs(NamedTuple):
    """FLOPs of a picture."""

    inference: float
    training: float


class Route(NamedTuple):
    """After each round: the accuracy, and what it took to get there."""

    accuracies: list[float]
    seconds: list[float]
    arithmetic: list[float]

    def to(self, accuracy: float) -> tuple[int, float, float]:
        """The first round that has it, seconds and FLOPs until then."""
        index = next(index for index, each in enumerate(self.accuracies) if each >= accuracy)
        return index + 1, self.seconds[index], self.arithmetic[index]


def needed(record: dict[str, Any], table: dict[str, Any], costs: Costs) -> float:
    """FLOPs of one round."""
    method, data = table["method"], table["data"]
    labeled = data["labeled"] * (1 - data["validation"])
    pictures, confident = sum(record["class_predictions"]), sum(record["class_histogram"])
    views = 2 if method["mix_weight"] else 1
    everybody = pictures / len(record["cohort"]) * data["clients"]
    measured = labeled + {"server": 0, "cohort": pictures, "all": everybody}[method["statistics"]]
    trained = labeled * method["server_epochs"] + confident * method["client_epochs"] * views
    return trained * costs.training + (pictures + measured) * costs.inference


def route(path: Path) -> Route:
    table, rounds = read(path / "config.toml"), RunDirectory(path).rounds()
    build = decode({"model": table["model"]}).model.thing  # no more of it: a run of another version has other keys
    costs = Costs(*flops(build(CHANNELS, SIZE, CLASSES), CHANNELS, SIZE))
    return Route(
        [record["accuracy"] for record in rounds],
        list(accumulate(record["seconds"]["total"] for record in rounds)),
        list(accumulate(needed(record, table, costs) for record in rounds)),
    )


def main() -> None:
    published, fast = (route(Path(word)) for word in sys.argv[1:3])
    accuracy = min(max(published.accuracies), max(fast.accuracies))
    slow_rounds, slow_seconds, slow_flops = published.to(accuracy)
    rounds, seconds, arithmetic = fast.to(accuracy)
    report(
        "time_to_accuracy",
        f"{accuracy:.2f} % on CIFAR-10",
        ratio=slow_flops / arithmetic,
        compared_with="the published recipe, by arithmetic",
        ratio_of_seconds=slow_seconds / seconds,
        published={"rounds": slow_rounds, "hours": round(slow_seconds / 3600, 2), "TFLOP": round(slow_flops / 1e12, 1)},
        fast={"rounds": rounds, "hours": round(seconds / 3600, 2), "TFLOP": round(arithmetic / 1e12, 1)},
    )


if __name__ == "__main__":
    main()

"""Time and arithmetic to a test accuracy that two SemiFL runs both reach, from their logs: which route is shorter?

`python benchmarks/time_to_accuracy.py PUBLISHED FAST` takes two run directories, finished or not. The accuracy is the
best that the worse of them has reached. Arithmetic is what a round needs by its record: labeled epochs, labelling, the
confident pictures' epochs in their views, BatchNorm statistics; testing is the experiment's and not counted. What the
labels learn before the first round (`start = "labels"`) counts. The clock is the runs' own, testing included: it says
something only if both had the same machine to themselves.

An accuracy that labels alone reach says nothing of clients: compare it with a run of `labels_only = true`.
"""

from __future__ import annotations

import json
import sys
from itertools import accumulate
from pathlib import Path
from typing import Any

from measure import Costs, costs_of, report

from semifl.configuration.config import decode, read
from semifl.records.directory import RunDirectory

CHANNELS, SIZE, CLASSES = 3, 32, 10  # of CIFAR-10


def needed(record: dict[str, Any], table: dict[str, Any], costs: Costs) -> float:
    """FLOPs of one round, from those of a picture."""
    method, data = table["method"], table["data"]
    labeled = data["labeled"] * (1 - data["validation"])
    pictures, confident = sum(record["class_predictions"]), sum(record["class_histogram"])
    views = 2 if method["mix_weight"] else 1
    everybody = pictures / len(record["cohort"]) * data["clients"]
    measured = labeled + {"server": 0, "cohort": pictures, "all": everybody}[method["statistics"]]
    trained = labeled * method["server_epochs"] + confident * method["client_epochs"] * views
    return trained * costs.training + pictures * costs.labelling + measured * costs.statistics


def before(path: Path, table: dict[str, Any], costs: Costs) -> tuple[float, float]:
    """Seconds and FLOPs of what came before the first round: as many rounds of the server alone, if any."""
    if table.get("start", "model") != "labels":
        return 0.0, 0.0
    labeled = table["data"]["labeled"] * (1 - table["data"]["validation"])
    trained = table["method"]["server_epochs"] * costs.training + costs.statistics  # in each round
    events = map(json.loads, (path / "events.jsonl").read_text(encoding="utf-8").splitlines())
    seconds = sum(each["seconds"] for each in events if each["event"] == "started from labels")
    return seconds, table["rounds"] * labeled * trained


def route(path: Path) -> list[tuple[float, float, float]]:
    """Round by round: the accuracy, and seconds and FLOPs until then."""
    table, rounds = read(path / "config.toml"), RunDirectory(path).rounds()
    build = decode({"model": table["model"]}).model.thing  # no more of it: a run of another version has other keys
    costs = costs_of(build(CHANNELS, SIZE, CLASSES), CHANNELS, SIZE)
    first_seconds, first_flops = before(path, table, costs)
    seconds = accumulate((record["seconds"]["total"] for record in rounds), initial=first_seconds)
    arithmetic = accumulate((needed(record, table, costs) for record in rounds), initial=first_flops)
    reached = [0.0, *(record.get("accuracy", 0.0) for record in rounds)]  # nobody tests what the rounds start from
    return list(zip(reached, seconds, arithmetic, strict=True))[1:]


def until(accuracy: float, rounds: list[tuple[float, float, float]]) -> dict[str, float]:
    """What it took to have that accuracy for the first time."""
    number, (_, seconds, arithmetic) = next(each for each in enumerate(rounds, 1) if each[1][0] >= accuracy)
    return {"rounds": number, "hours": seconds / 3600, "TFLOP": arithmetic / 1e12}


def main() -> None:
    published, fast = (route(Path(word)) for word in sys.argv[1:3])
    accuracy = min(max(published)[0], max(fast)[0])
    slow, quick = until(accuracy, published), until(accuracy, fast)
    report(
        "time_to_accuracy",
        f"{accuracy:.2f} % on CIFAR-10",
        ratio=slow["TFLOP"] / quick["TFLOP"],
        compared_with="the published recipe, by arithmetic",
        ratio_of_hours=slow["hours"] / quick["hours"],
        **{f"published_{name}": value for name, value in slow.items()},
        **{f"fast_{name}": value for name, value in quick.items()},
    )


if __name__ == "__main__":
    main()

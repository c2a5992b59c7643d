"""What stands on this page of the runs of a table: `python results/few-labels/collect.py RUNS SLOWER > runs.csv`.

A line for each run, its accuracy and that of its labels only in percent, and the first round in which it is at the
final accuracy of the run of the method SLOWER with the same data and seed. On standard error: per cell what clients
brought beyond labels only, with the 95 % interval over seeds.
"""

from __future__ import annotations

import csv
import sys
from math import isnan
from pathlib import Path
from typing import Any

from tables import gain

from semifl.parsing import from_toml
from semifl.records.directory import RunDirectory

Row = dict[str, Any]


def row(path: Path) -> Row | None:
    run = RunDirectory(path)
    summary, config = run.summary(), from_toml((path / "config.toml").read_text(encoding="utf-8"))
    if summary is None:
        return None
    partition = config["data"].get("partition", {"name": "iid"})
    return {
        "method": variant(config["method"]),
        "labels": config["data"]["labeled"],
        "partition": " ".join(str(value) for value in partition.values()),
        "seed": config["seed"],
        "accuracy": round(summary["accuracy"], 2),
        "labels_only": summary.get("labels_only_accuracy"),
        "rounds": [each.get("accuracy", float("nan")) for each in run.rounds()],
        "seconds": [each["seconds"]["total"] for each in run.rounds()],
    }


def variant(method: dict[str, Any]) -> str:
    """Return the name of a method, and of (FL)² in its former setting another one."""
    is_former = method["name"] == "fl2" and method["lr_schedule"] == "cosine"
    return "fl2_short" if is_former else str(method["name"])


def rows_of(runs: Path) -> list[Row]:
    found = [each for path in sorted(runs.iterdir()) if path.is_dir() and (each := row(path))]
    return [with_labels_only(each, found) for each in found]


def with_labels_only(row: Row, rows: list[Row]) -> Row:
    """A run without that line has the one of a run with other clients: labels alone do not know them."""
    same = ("method", "labels", "seed")
    found = [r["labels_only"] for r in rows if r["labels_only"] is not None and all(r[key] == row[key] for key in same)]
    return {**row, "labels_only": round(found[0], 2) if found else float("nan")}


def overtakes(mine: Row, others: list[Row], slower: str) -> int | None:
    same = ("labels", "partition", "seed")
    rival = next((r for r in others if r["method"] == slower and all(r[key] == mine[key] for key in same)), None)
    if rival is None:
        return None
    return next((index for index, value in enumerate(mine["rounds"], 1) if value >= rival["accuracy"]), None)


def main() -> None:
    rows, slower = rows_of(Path(sys.argv[1])), sys.argv[2]
    names = ["method", "labels", "partition", "seed", "accuracy", "labels_only", f"as {slower} in round"]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    for each in rows:
        writer.writerow([*(each[name] for name in names[:-1]), overtakes(each, rows, slower)])
    for cell in dict.fromkeys((each["method"], each["labels"], each["partition"]) for each in rows):
        here = [r for r in rows if (r["method"], r["labels"], r["partition"]) == cell and not isnan(r["labels_only"])]
        if here:  # some tables have no labels only
            gains = {str(r["seed"]): r["accuracy"] - r["labels_only"] for r in here}
            print(*cell, f"{gain(gains)}, n = {len(gains)}", file=sys.stderr)


if __name__ == "__main__":
    main()

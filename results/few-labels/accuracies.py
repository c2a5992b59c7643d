"""What the runs of a table ended with, a line for each: `python results/few-labels/accuracies.py RUNS > FILE.csv`."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path

from semifl.records.directory import RunDirectory


def main() -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["row and column", "seed", "accuracy"])
    for path in sorted(Path(sys.argv[1]).glob("*-seed-*")):
        name, seed = re.fullmatch(r"(.*)-[0-9a-f]{6}-seed-(\d+)", path.name).groups()
        if summary := RunDirectory(path).summary():
            writer.writerow([name, seed, round(summary["accuracy"], 2)])


if __name__ == "__main__":
    main()

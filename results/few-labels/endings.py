"""How the runs of a table ended, a line for each: `python results/few-labels/endings.py RUNS > FILE.csv`.

Final accuracy, that of the best round, and the share of confident pictures in the last round. `ablation.csv` is such a
file, and `collapse.csv`, of which the page has means over seeds and the largest distance between the first two.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

from semifl.records.directory import RunDirectory


def main() -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["run", "accuracy", "best_test_accuracy", "confident"])
    for path in sorted(Path(sys.argv[1]).iterdir()):
        run = RunDirectory(path)
        if path.is_dir() and (summary := run.summary()):
            confident = [each["label_ratio"] for each in run.rounds()][-1]
            values = (summary["accuracy"], summary["best_test_accuracy"], 100 * confident)
            writer.writerow([path.name, *(f"{value:.2f}" for value in values)])


if __name__ == "__main__":
    main()

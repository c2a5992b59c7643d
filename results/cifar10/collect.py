"""What run directories say, as small files beside this one: `python results/cifar10/collect.py RUNS`.

`runs.csv` has a line for each run, finished or not, `curves.csv` one for each of its rounds. Lines of runs that are not
in RUNS stay: they are another machine's. Hours are those of the rounds; what the labels learn before them is apart (and
was not noted before 18 November 2026). The tables themselves are printed by
`semifl table paper --scale small --out RUNS --metric accuracy`.
"""

from __future__ import annotations

import csv
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WORLDS = {"iid": "IID", "k2": "K = 2", "dir0.3": "Dir(0.3)"}
CURVE = ("accuracy", "label_ratio", "pseudo_accuracy", "confident_accuracy")


def rounds_of(directory: Path) -> list[dict[str, Any]]:
    lines = (directory / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.endswith("}")]  # the last one may be cut off


def start_hours(directory: Path) -> float | str:
    """What came before the first round, if that was noted: the same of each sitting, for it is trained once."""
    file = directory / "events.jsonl"
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    events = [json.loads(line) for line in lines if line.endswith("}")]
    seconds = [each["seconds"] for each in events if each["event"] == "started from labels"]
    return round(sum(seconds) / 3600, 2) if seconds else ""


def about(directory: Path, rounds: list[dict[str, Any]]) -> dict[str, Any]:
    config = tomllib.loads((directory / "config.toml").read_text(encoding="utf-8"))
    environment = json.loads((directory / "environment.json").read_text(encoding="utf-8"))
    result_file, commit_file = directory / "result.json", directory.with_name(f"{directory.name}.commit")
    result = json.loads(result_file.read_text(encoding="utf-8")) if result_file.is_file() else {}
    tested = [each["accuracy"] for each in rounds if "accuracy" in each]
    cell, _, seed = directory.name.rpartition("-seed-")
    return {
        "cell": cell,
        "seed": seed,
        "method": config["method"]["name"],
        "labels": config["data"]["labeled"],
        "partition": config["data"]["partition"]["name"],
        "rounds": f"{len(rounds)} of {config['rounds']}",
        "finished": "yes" if result else "no",
        "accuracy": result.get("accuracy", tested[-1]),
        "best_test_accuracy": max(result.get("best_test_accuracy", 0.0), *tested),
        "labels_only_accuracy": result.get("labels_only_accuracy", ""),
        "hours": round(sum(each["seconds"]["total"] for each in rounds) / 3600, 2),
        "start_hours": start_hours(directory),
        "commit": commit_file.read_text(encoding="utf-8").strip()[:12] if commit_file.is_file() else "",
        "hardware": f"{environment['cores']} cores {environment['processor']} ({environment['cpu_capability']})",
        "torch": environment["torch"],
    }


def write(name: str, rows: list[dict[str, Any]]) -> None:
    with (HERE / name).open(encoding="utf-8", newline="") as file:
        before = list(csv.DictReader(file))
    known = {run_of(each) for each in rows}
    everything = [*(each for each in before if run_of(each) not in known), *rows]
    with (HERE / name).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(everything, key=run_of))  # rounds keep their order


def run_of(row: dict[str, Any]) -> tuple[str, str]:
    return row["cell"], row["seed"]


def main() -> None:
    runs, curves = [], []
    for path in sorted(Path(sys.argv[1]).glob("*-seed-*/rounds.jsonl")):
        rounds = rounds_of(path.parent)
        if not rounds:
            continue
        run = about(path.parent, rounds)
        runs.append(run)
        for each in rounds:
            shown = {key: "" if each.get(key) is None else round(each[key], 3) for key in CURVE}
            curves.append({"cell": run["cell"], "seed": run["seed"], "round": each["round"], **shown})
    write("runs.csv", runs)
    write("curves.csv", curves)


if __name__ == "__main__":
    main()

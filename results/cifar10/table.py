"""The cells that `runs.csv` has, beside the paper's values, for the page: `python results/cifar10/table.py`.

`semifl table paper --scale small --out RUNS --metric accuracy` prints the paper's whole tables, from run directories;
this needs only the small file, and shows the cells of `run_cells.py`.
"""

from __future__ import annotations

from statistics import mean, stdev

from collect import WORLDS
from orderings import printed, runs

ROWS = {
    "all labels, one place": "fully-supervised",
    "labels alone": "{labels}-partially-supervised",
    "FixMatch in one place": "{labels}-fixmatch",
    "labels at the clients: FedAvg": "{world}-fedavg",
    "labels at the clients: HeteroFL": "{world}-heterofl",
    "**SemiFL**": "{labels}-{world}",
    "SemiFL without Mixup": "{labels}-{world}-nomix",
    "… labels batch by batch": "{labels}-{world}-alternate-batch",
    "… server and clients in parallel": "{labels}-{world}-parallel-global",
    "… both": "{labels}-{world}-parallel-batch",
    "FedAvg + FixMatch": "{labels}-{world}-fedavg-fixmatch",
    "FedMatch": "{labels}-{world}-fedmatch",
    "FedRGD": "{labels}-{world}-fedrgd",
}
COLUMNS = [(labels, world) for labels in (4000, 250) for world in WORLDS]


def shown(cell: str, found: dict[str, dict[int, float]], theirs: dict[str, float]) -> str:
    """Return the mean over seeds, the sample deviation if they are several, and the paper's."""
    if cell not in found:
        return "–"
    ours = list(found[cell].values())
    spread = f" ± {stdev(ours):.1f}" if len(ours) > 1 else ""
    return f"{mean(ours):.1f}{spread}" + (f" [{theirs[cell]:.1f}]" if cell in theirs else "")


def main() -> None:
    found, theirs = runs(), printed()
    print("| | " + " | ".join(f"{labels:,}, {WORLDS[world]}" for labels, world in COLUMNS) + " |")
    print("|---" * (len(COLUMNS) + 1) + "|")
    for words, pattern in ROWS.items():
        cells = ["cifar10-" + pattern.format(labels=labels, world=world) for labels, world in COLUMNS]
        if any(cell in found for cell in cells):
            print(f"| {words} | " + " | ".join(shown(cell, found, theirs) for cell in cells) + " |")


if __name__ == "__main__":
    main()

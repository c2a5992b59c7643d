"""The runs behind this page, those that matter most first; the same command goes on after any stop.

One runs on each core that the process may use.

`python results/cifar10/run_cells.py RUNS --set data.name=folder --set data.root=PICTURES`, or without --set for
CIFAR-10 from its own files. Cells are those of `semifl table paper --scale small`, and lie where its `--out RUNS`
looks for them. With `--missing`, on another machine than before, only those that `runs.csv` has not as finished.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from orderings import runs

from semifl import toml
from semifl.configuration.config import override
from semifl.studies.presets import find
from semifl.studies.recipes import refuse_other_recipes
from semifl.studies.scales import SCALES
from semifl.studies.tables import Cell, paper_tables

PARTITIONS = ("iid", "k2", "dir0.3")
WIDE = (  # 14 × 50,000 × 2 × 340 million multiply-adds; the rest was chosen with held-out labels
    *("model.widths=[64,256,256]", "model.mirrored=true", "rounds=14"),
    *("method.batch=125", "method.lr=0.18", "method.weight_decay=8e-4", "method.clip_norm=0.0"),
    *("method.objective.smoothing=0.2", "data.weak_view=views:two_pixels", "data.labeled=4000"),
)


def order() -> Iterator[tuple[str, int]]:
    """Names of cells, each with a seed."""
    headline = ["4000-partially-supervised", "250-partially-supervised", "4000-iid", "250-iid", "4000-k2", "250-k2"]
    yield from ((name, 0) for name in headline)
    yield from ((name, 0) for name in ("4000-fixmatch", "250-fixmatch", "fully-supervised-wide"))
    yield from ((name, 1) for name in headline)
    yield from ((f"4000-iid-{name}", 0) for name in ("fedavg-fixmatch", "fedmatch"))
    yield from ((f"iid-{name}", 0) for name in ("fedavg", "heterofl"))
    yield from ((f"{labels}-dir0.3", 0) for labels in (4000, 250))
    components = ("parallel-batch", "parallel-global", "alternate-batch", "nomix")
    yield from ((f"4000-{partition}-{name}", 0) for partition in ("iid", "k2") for name in components)
    yield from ((f"{partition}-{name}", 0) for partition in ("k2", "dir0.3") for name in ("fedavg", "heterofl"))
    yield from ((f"4000-k2-{name}", 0) for name in ("fedavg-fixmatch", "fedmatch"))
    yield from ((f"250-{partition}-fedmatch", 0) for partition in PARTITIONS)
    yield ("4000-dir0.3-fedmatch", 0)
    yield from ((f"{labels}-{partition}-fedrgd", 0) for labels in (4000, 250) for partition in PARTITIONS)
    yield from (("fully-supervised", 0), ("dir0.3-fedavg-240-rounds", 0))


def beside(settings: list[str]) -> Iterator[Cell]:
    """Two runs that are no cells: what one place can do with 0.5 PFLOP, and FedAvg with four times the rounds."""
    yield from (
        Cell(f"cifar10-{name}", "", "", override(SCALES["small"](find(f"cifar10-{cell}").table), [*settings, *changes]))
        for name, cell, changes in (
            ("fully-supervised-wide", "fully-supervised", WIDE),
            ("dir0.3-fedavg-240-rounds", "dir0.3-fedavg", ("rounds=240",)),
        )
    )


def run(cell: Cell, seed: int, folder: Path) -> None:
    directory = folder / f"{cell.name}-seed-{seed}"
    if (directory / "result.json").is_file():
        return
    command = [sys.executable, "-m", "semifl", "resume", str(directory), "--workers", "1"]
    if not (directory / "config.toml").is_file():
        file = folder / f"{cell.name}.toml"
        file.write_text(toml.dumps(cell.config), encoding="utf-8")
        command[3:5] = ["run", str(file), "--set", f"seed={seed}", "--out", str(directory)]
        (folder / f"{directory.name}.commit").write_text(commit(), encoding="utf-8")
    print(time.strftime("%m-%d %H:%M"), directory.name, flush=True)
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}  # where views.py is
    subprocess.run(command, stdout=subprocess.DEVNULL, env=here, check=False)  # one that fails does not stop the rest


def commit() -> str:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    settings = [word for word in sys.argv[2:] if word not in ("--set", "--missing")]
    finished = runs() if "--missing" in sys.argv else {}
    in_tables = [cell for table in paper_tables("small", settings) for cell in table.cells]
    cells = {cell.name: cell for cell in (*in_tables, *beside(settings))}
    refuse_other_recipes(cells.values(), folder)
    pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))
    wanted = [(f"cifar10-{name}", seed) for name, seed in order()]
    wanted = [(name, seed) for name, seed in wanted if seed not in finished.get(name, {})]
    waiting = [pool.submit(run, cells[name], seed, folder) for name, seed in wanted]
    try:
        for each in waiting:
            each.result()
    finally:
        pool.shutdown(cancel_futures=True)  # Ctrl-C ends the runs under way, and no other begins


if __name__ == "__main__":
    main()

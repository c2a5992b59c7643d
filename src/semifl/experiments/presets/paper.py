"""The SemiFL cells of the paper's result table (Table 1), with the settings of the released program.

Values are the paper's: mean over four seeds of the best test round, and the standard deviation, in percent.
"""

from __future__ import annotations

from collections.abc import Iterator

from semifl.experiments.toml import Table

COLUMNS = (("cifar10", 250), ("cifar10", 4000), ("svhn", 250), ("svhn", 1000), ("cifar100", 2500), ("cifar100", 10000))

PARTITIONS: dict[str, Table] = {
    "k2": {"name": "classes", "per_client": 2},
    "dir0.1": {"name": "dirichlet", "alpha": 0.1},
    "dir0.3": {"name": "dirichlet", "alpha": 0.3},
    "iid": {"name": "iid"},
}

SEMIFL = {
    "k2": ("60.0 (0.9)", "85.3 (0.3)", "87.5 (1.1)", "92.2 (0.8)", "35.2 (0.3)", "62.1 (0.4)"),
    "dir0.1": ("63.0 (0.6)", "84.5 (0.4)", "91.2 (0.3)", "93.0 (0.5)", "49.0 (1.0)", "68.0 (0.2)"),
    "dir0.3": ("71.9 (1.2)", "88.9 (0.3)", "94.0 (0.5)", "95.2 (0.2)", "54.9 (1.4)", "70.0 (0.3)"),
    "iid": ("88.2 (0.3)", "93.1 (0.1)", "96.8 (0.3)", "96.9 (0.1)", "61.3 (1.2)", "72.1 (0.2)"),
}

# What the released program does where the paper's text is silent or differs.
RELEASED: Table = {
    "activity_rate": 0.1,
    "clip_norm": 1.0,
    "mix_draw": "epoch",
    "mix_view": "own",
    "strong_view": "reference",
    "statistics": "all",
    "client_buffers": "kept",
    "server_buffers": "kept",
    "order": "reference",
    "cohort_rounding": "ceil",
}

# The paper's table of hyper-parameters gives another server batch than the released program in these columns.
TABLE_BATCH = {("svhn", 1000): 250, ("cifar100", 2500): 10}


def cells() -> Iterator[tuple[str, str, Table]]:
    """Name, one line about it, and the configuration of every cell."""
    for partition, values in SEMIFL.items():
        for (data, labeled), value in zip(COLUMNS, values, strict=True):
            name = f"{data}-{labeled}-{partition}"
            about = f"SemiFL, {data} with {labeled} labels, {partition}; paper: {value}"
            yield name, about, _cell(data, labeled, partition, 250 if labeled > 1000 else 10)
            if (data, labeled) in TABLE_BATCH:
                batch = TABLE_BATCH[data, labeled]
                about += f"; server batch {batch} as in the paper's table of hyper-parameters"
                yield f"{name}-table", about, _cell(data, labeled, partition, batch)


def _cell(data: str, labeled: int, partition: str, server_batch: int) -> Table:
    return {
        "rounds": 800,
        "labels_only": False,
        "data": {"name": data, "labeled": labeled, "clients": 100, "partition": PARTITIONS[partition]},
        "model": {"name": "wide_resnet", "depth": 28, "width": 8 if data == "cifar100" else 2},
        "method": {"name": "semifl", "server_batch": server_batch, **RELEASED},
    }

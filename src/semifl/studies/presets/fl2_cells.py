"""The cells of (FL)²'s own table, and SemiFL's own program beside the values that (FL)²'s authors print for it.

Values: mean accuracy over three seeds, as far as they are known to us. (FL)²'s authors ran SemiFL inside their own
program, with other views, normalization and batches; the SemiFL presets here are SemiFL's released program.
"""

from __future__ import annotations

from collections.abc import Iterator

from semifl.toml import Table

LABELS = (("cifar10", 10), ("cifar10", 40), ("svhn", 40), ("svhn", 250), ("cifar100", 400))
# By partition, in the order of LABELS: (FL)², SemiFL as they ran it.
VALUES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "iid": (("38.9", "81.5", "75.3", "94.6", "28.1"), ("10.0", "75.3", "53.4", "43.3 (41)", "27.9")),
    "dir0.1": (("19.2", "36.4", "21.5", "88.0", "23.5"), ("10.0", "19.9", "18.0", "82.3", "13.5")),
    "dir0.3": (("",) * 5, ("",) * 5),
}
NAMES = {"": "(FL)²", "-semifl": "SemiFL"}
SERVER_BATCH = 10
WARMUP_CALLS, CALL_EPOCHS = 10, 5  # Their CIFAR-10 program trains the server in ten calls of five epochs first.


def fl2(data: str, labeled: int) -> Table:
    """Return (FL)²'s section [method] for a data set and a number of labels.

    On SVHN the warm-up is 2,048 steps. On CIFAR-100 the released program does not define its length;
    with 400 labels both rules give ten calls.
    """
    calls = WARMUP_CALLS * CALL_EPOCHS * (labeled // SERVER_BATCH)
    return {
        "name": "fl2",
        "activity_rate": 0.1,
        "client_epochs": CALL_EPOCHS,
        "server_epochs": CALL_EPOCHS,
        "client_batch": 32,
        "lr": 0.03,
        "lr_schedule": "constant",
        "clip_norm": 1.0,
        "statistics": "all",
        "strong_view": "fixmatch",
        "threshold": 0.95,
        "sharpness": 1.0 if data == "cifar100" else 0.1,
        "warmup_steps": calls if data == "cifar10" else 2048,
    }


def rows(semifl: Table) -> Iterator[tuple[str, str, str, int, str, Table, str]]:
    """Of each cell: name, what it is, data, labels, partition, method, the value that they print."""
    for partition, values in VALUES.items():
        for suffix, printed in zip(NAMES, values, strict=True):
            for (data, labeled), value in zip(LABELS, printed, strict=True):
                method = semifl if suffix else fl2(data, labeled)
                yield (
                    f"fl2-{data}-{labeled}-{partition}{suffix}",
                    NAMES[suffix],
                    data,
                    labeled,
                    partition,
                    method,
                    value,
                )

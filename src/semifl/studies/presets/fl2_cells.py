"""The cells of (FL)²'s own table, with SemiFL's beside them, as its authors ran and printed both.

Values: mean accuracy over three seeds, as far as they are known to us.
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
FL2: Table = {"name": "fl2", "activity_rate": 0.1, "strong_view": "reference"}
NAMES = {"": "(FL)²", "-semifl": "SemiFL"}


def rows(semifl: Table) -> Iterator[tuple[str, str, str, int, str, Table, str]]:
    """Of each cell: name, what it is, data, labels, partition, method, the value that they print."""
    for partition, values in VALUES.items():
        for suffix, method, printed in zip(NAMES, (FL2, semifl), values, strict=True):
            for (data, labeled), value in zip(LABELS, printed, strict=True):
                yield (
                    f"fl2-{data}-{labeled}-{partition}{suffix}",
                    NAMES[suffix],
                    data,
                    labeled,
                    partition,
                    method,
                    value,
                )

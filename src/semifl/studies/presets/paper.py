"""Every cell of the paper's four result tables as a configuration, with the value that the paper prints.

Values are the paper's: mean over four seeds of the best test round, and the standard deviation, in percent. Settings
are the released program's; where it ran a weakened baseline, the cell runs what the baseline's own authors describe
and the weakened one is there too, under a name that ends in `-released`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from semifl.studies.presets.values import ABLATION, COMPONENT, FL, FULLY, PARTIALLY, SBN_SERVER, SSFL, SSL
from semifl.toml import Table

COLUMNS = (("cifar10", 250), ("cifar10", 4000), ("svhn", 250), ("svhn", 1000), ("cifar100", 2500), ("cifar100", 10000))
DATA = ("cifar10", "svhn", "cifar100")
PICTURES = {"cifar10": 50_000, "svhn": 73_257, "cifar100": 50_000}  # for training
SSL_STEPS = 2**20  # of the semi-supervised literature

PARTITIONS: dict[str, Table] = {
    "k2": {"name": "classes", "per_client": 2},
    "dir0.1": {"name": "dirichlet", "alpha": 0.1},
    "dir0.3": {"name": "dirichlet", "alpha": 0.3},
    "iid": {"name": "iid"},
}
PARTITION_NAMES = {"k2": "non-IID, K = 2", "dir0.1": "non-IID, Dir(0.1)", "dir0.3": "non-IID, Dir(0.3)", "iid": "IID"}

# What the released program does where the paper's text is silent or differs, in all its federated methods; SemiFL's
# own are defaults of `semifl_released`.
EVERYONE: Table = {
    "activity_rate": 0.1,
    "cohort_rounding": "ceil",
    "clip_norm": 1.0,
    "statistics": "all",
}
SEMIFL: Table = {"name": "semifl_released", "activity_rate": 0.1}
FEDMATCH: Table = {
    "name": "fedmatch",
    **EVERYONE,
    "strong_view": "reference",
    "client_epochs": 5,
    "server_epochs": 5,
    "client_batch": 10,
    "lr": 0.03,
    "momentum": 0.9,
    "nesterov": True,
    # The authors' 10 pulls ψ a tenth of the way to σ in a round at their lr 1e-3 and five steps; with this optimiser
    # and 250 steps it would make ψ a copy of σ at once, and the clients could teach nothing.
    "l2_weight": 1e-3,
}
FEDRGD: Table = {"name": "fedrgd", **EVERYONE, "strong_view": "reference"}
PARALLEL: Table = {"name": "fedavg_fixmatch", **EVERYONE, "strong_view": "reference"}
METHODS: dict[str, Table] = {
    "semifl": SEMIFL,
    "fedmatch": FEDMATCH,
    # Five epochs of 500 pictures in batches of ten, as everybody else here; its authors average after 16 steps.
    "fedrgd": {**FEDRGD, "iterations": 250},
    "fedavg": {"name": "fedavg", **EVERYONE, "weighting": "uniform", "client_buffers": "kept"},
    "heterofl": {"name": "heterofl", **EVERYONE},
}
RELEASED = {
    "fedmatch": {
        **FEDMATCH,
        "consistency_weight": 0.0,
        "l1_weight": 0.0,
        "l2_weight": 0.0,
        "helpers": 0,
        "trained": "convolutions",
    },
    "fedrgd": {**FEDRGD, "iterations": 0, "server_optimizer": {"momentum": 0.5}, "step_from": "server"},
}

# The paper's table of hyper-parameters gives another server batch than the released program in these columns.
TABLE_BATCH = {("svhn", 1000): 250, ("cifar100", 2500): 10}

# The released program starts the global step of parallel training from the server's model, and its momentum then undoes
# what the server has learned. The values of the component table were made that way, so its rows do it too.
# The component table: what a row changes, and the two readings of its ablated rows.
COMPONENTS: dict[str, Table] = {
    "parallel-batch": {"training": "parallel", "step_from": "server", "labeling": "batch"},
    "parallel-global": {"training": "parallel", "step_from": "server", "labeling": "global"},
    "alternate-batch": {"training": "alternate", "labeling": "batch"},
}
ABLATIONS: dict[str, Table] = {
    "e1": {"client_epochs": 1, "server_epochs": 1},
    "nomix": {"mix_weight": 0.0},
    "nomomentum": {"server_optimizer": {"momentum": 0.0}},
}


class PaperCell(NamedTuple):
    """One preset, and its place in the paper: which table, row and column, and the value printed there (or none)."""

    name: str
    about: str
    config: Table
    table: str
    row: str
    column: str
    value: str


def cells() -> Iterator[PaperCell]:
    yield from _semifl_cells()
    yield from _other_federated_cells()
    yield from _centralized_cells()
    yield from _ablation_cells()
    yield from _extra_cells()


def _semifl_cells() -> Iterator[PaperCell]:
    for partition, values in SSFL["semifl"][1].items():
        for (data, labeled), value in zip(COLUMNS, values, strict=True):
            name = f"{data}-{labeled}-{partition}"
            yield _result(name, "SemiFL", data, labeled, partition, METHODS["semifl"], value)
            if (data, labeled) in TABLE_BATCH:
                batch = TABLE_BATCH[data, labeled]
                cell = _result(f"{name}-table", "SemiFL", data, labeled, partition, METHODS["semifl"], value)
                cell.config["method"]["server_batch"] = batch
                about = f"{cell.about}; server batch {batch} as in the paper's table of hyper-parameters"
                yield cell._replace(about=about, table="", row="", column="")


def _other_federated_cells() -> Iterator[PaperCell]:
    for key in ("fedmatch", "fedrgd"):
        label, by_partition = SSFL[key]
        for partition, values in by_partition.items():
            for (data, labeled), value in zip(COLUMNS, values, strict=True):
                name = f"{data}-{labeled}-{partition}-{key}"
                cell = _result(name, label, data, labeled, partition, METHODS[key], value)
                if key == "fedrgd":
                    cell.config["model"]["norm"] = "group"
                yield cell
                weak = _result(f"{name}-released", label, data, labeled, partition, RELEASED[key], value)
                yield weak._replace(about=f"{weak.about}; as the released program ran it", table="", row="", column="")
    for partition, printed_values in FL["fedavg"][1].items():
        for data, value in zip(DATA, printed_values, strict=True):
            labeled = min(labeled for name, labeled in COLUMNS if name == data)
            for key, label, printed in (("fedavg", "HeteroFL", value), ("heterofl", "HeteroFL itself", "")):
                cell = _result(f"{data}-{partition}-{key}", label, data, labeled, partition, METHODS[key], printed)
                yield cell._replace(column=data)


def _centralized_cells() -> Iterator[PaperCell]:
    for data, value in zip(DATA, FULLY, strict=True):
        labeled = min(labeled for name, labeled in COLUMNS if name == data)
        method: Table = {"name": "centralized", "labels": "all", "batch": 250, "objective": {"name": "supervised"}}
        cell = _central(f"{data}-fully-supervised", "Fully Supervised", data, labeled, method, 400, value)
        yield cell._replace(column=data)
    for (data, labeled), value in zip(COLUMNS, PARTIALLY, strict=True):
        batch = 250 if labeled > 1000 else 10
        method = {"name": "centralized", "batch": batch, "objective": {"name": "supervised"}}
        name = f"{data}-{labeled}-partially-supervised"
        yield _central(name, "Partially Supervised", data, labeled, method, 400, value)
    for objective, (label, values) in SSL.items():
        for (data, labeled), value in zip(COLUMNS, values, strict=True):
            ratio = 7 if objective in ("fixmatch", "uda") else 1
            method = {"name": "centralized", "batch": 64, "lr": 0.03, "ema": 0.999, "objective": {"name": objective}}
            epochs = math.ceil(SSL_STEPS / math.ceil((PICTURES[data] - labeled) / (64 * ratio)))
            yield _central(f"{data}-{labeled}-{objective}", label, data, labeled, method, epochs, value)


def _ablation_cells() -> Iterator[PaperCell]:
    for partition in ("k2", "iid"):
        column = PARTITION_NAMES[partition]
        for key, changes in COMPONENTS.items():
            value, label = COMPONENT[key][partition], COMPONENT[key]["row"]
            for suffix, mixup in (("", 0.0), ("-mixup", 1.0)):
                method = {**SEMIFL, "name": "semifl_ablated", **changes, "mix_weight": mixup}
                reading = "with Mixup" if mixup else "without Mixup, as the table was run"
                row = f"{label}, {reading.partition(',')[0]}"
                yield _ablation(f"{partition}-{key}{suffix}", row, 4000, partition, method, "component", column, value)
        yield _same(f"cifar10-4000-{partition}", COMPONENT["alternate-global"]["row"], "component", column)
        for key, changes in ABLATIONS.items():
            value, row = ABLATION[key][partition], ABLATION[key]["row"]
            method = {**SEMIFL, **changes}
            yield _ablation(f"{partition}-{key}", row, 4000, partition, method, "ablation", column, value)
        yield _same(f"cifar10-4000-{partition}", ABLATION["full"]["row"], "ablation", column)
        for labeled in (250, 4000):
            method = {**SEMIFL, "statistics": "server"}
            value, place = SBN_SERVER[partition][labeled], f"{labeled}, {column}"
            yield _ablation(f"{partition}-sbn-server", "server only", labeled, partition, method, "sbn", place, value)
            yield _same(f"cifar10-{labeled}-{partition}", "server and clients", "sbn", place)


def _extra_cells() -> Iterator[PaperCell]:
    """The paper's second figure, and two baselines as their own authors ran them."""
    for partition in ("k2", "iid"):
        for suffix, steps in (("fedavg-fixmatch", 0), ("fedsgd-fixmatch", 1)):
            method = {**PARALLEL, "local_steps": steps}
            row = "FedAvg + FixMatch" if steps == 0 else "FedSGD + FixMatch"
            column = PARTITION_NAMES[partition]
            yield _ablation(f"{partition}-{suffix}", row, 4000, partition, method, "figure", column, "")
            weak = {**method, "step_from": "server"}
            cell = _ablation(f"{partition}-{suffix}-released", row, 4000, partition, weak, "", column, "")
            yield cell._replace(about=f"{row}, as the released program ran it; figure 2 of the paper")
    own = _federated("cifar10", 5000, "iid", {"name": "fedmatch"})
    own |= {"rounds": 200, "model": {"name": "resnet", "depth": 9, "norm": "group"}}
    about = "FedMatch as its authors ran it, but for GroupNorm where they have no norm; their value: 44.95 (0.49)"
    yield PaperCell("fedmatch-authors", about, own, "", "", "", "")
    own = _federated("cifar10", 1000, "iid", {"name": "fedrgd", "activity_rate": 1.0, "client_batch": 64})
    own["data"]["clients"] = 10
    own |= {"rounds": 20_000, "model": {"name": "resnet", "depth": 18, "norm": "group"}}
    own["method"]["server_batch"] = 64
    yield PaperCell(
        "fedrgd-authors", "FedRGD as its authors ran it, 10 clients; their value: 93.5", own, "", "", "", ""
    )


def _result(name: str, label: str, data: str, labeled: int, partition: str, method: Table, value: str) -> PaperCell:
    """A federated cell of the result table."""
    row = f"{label}, {PARTITION_NAMES[partition]}"
    return PaperCell(
        name,
        _about(f"{row}, {data} with {labeled} labels", value),
        _federated(data, labeled, partition, method),
        "results",
        row,
        f"{data}-{labeled}",
        value,
    )


def _central(name: str, label: str, data: str, labeled: int, method: Table, epochs: int, value: str) -> PaperCell:
    config = _federated(data, labeled, "iid", method) | {"rounds": epochs}
    about = _about(f"{label}, {data} with {labeled} labels", value)
    return PaperCell(name, about, config, "results", label, f"{data}-{labeled}", value)


def _ablation(
    suffix: str, row: str, labeled: int, partition: str, method: Table, table: str, column: str, value: str
) -> PaperCell:
    config = _federated("cifar10", labeled, partition, method)
    about = _about(f"{row}, cifar10 with {labeled} labels, {PARTITION_NAMES[partition]}", value)
    return PaperCell(f"cifar10-{labeled}-{suffix}", about, config, table, row, column, value)


def _same(name: str, row: str, table: str, column: str) -> PaperCell:
    """A cell of the result table that stands in another table, too."""
    cell = next(cell for cell in _semifl_cells() if cell.name == name)
    return cell._replace(table=table, row=row, column=column)


def _about(what: str, value: str) -> str:
    return f"{what}; paper: {value}" if value else f"{what}; not in the paper's tables"


def _federated(data: str, labeled: int, partition: str, method: Table) -> Table:
    """The settings that all rows share."""
    full = dict(method)
    if method["name"] not in ("centralized", "fedavg", "heterofl"):  # whose server trains in rounds
        full["server_batch"] = 250 if labeled > 1000 else 10
    return {
        "rounds": 800,
        "labels_only": False,
        "data": {"name": data, "labeled": labeled, "clients": 100, "partition": dict(PARTITIONS[partition])},
        "model": {"name": "wide_resnet", "depth": 28, "width": 8 if data == "cifar100" else 2},
        "method": full,
    }

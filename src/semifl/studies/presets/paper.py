"""Every cell of the paper's result tables and figures as a configuration, with the value that the paper prints.

Values are the paper's: mean over four seeds of the best test round, and the standard deviation, in percent. A cell
with a value runs what made it: the released program's settings, in the version that the paper's own numbers match.
Where the program's last version differs, the cell is there too, under a name that ends in `-released`; where it ran a
weakened baseline, the value stands beside the weakened one, and what the baseline's authors describe has its own row.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from semifl.studies.presets import fl2_cells, ssl_rows
from semifl.studies.presets.values import ABLATION, AUTHORS, COMPONENT, FL, FULLY, PARTIALLY, SBN_SERVER, SSFL, SSL
from semifl.toml import Table

COLUMNS = (("cifar10", 250), ("cifar10", 4000), ("svhn", 250), ("svhn", 1000), ("cifar100", 2500), ("cifar100", 10000))
DATA = ("cifar10", "svhn", "cifar100")
PICTURES = {"cifar10": 50_000, "svhn": 73_257, "cifar100": 50_000}  # for training
CLIENTS = 100

PARTITIONS: dict[str, Table] = {
    "k2": {"name": "classes", "per_client": 2},
    "dir0.1": {"name": "dirichlet", "alpha": 0.1},
    "dir0.3": {"name": "dirichlet", "alpha": 0.3},
    "iid": {"name": "iid"},
}
PARTITION_NAMES = {"k2": "non-IID, K = 2", "dir0.1": "non-IID, Dir(0.1)", "dir0.3": "non-IID, Dir(0.3)", "iid": "IID"}

# The paper's table of hyper-parameters; the program's last version took 10 up to 1,000 labels.
SERVER_BATCH = dict(zip(COLUMNS, (10, 250, 10, 250, 10, 250), strict=True))

# What the released program does where the paper's text is silent or differs, in all its federated methods; SemiFL's
# own are defaults of `semifl_released`.
EVERYONE: Table = {
    "activity_rate": 0.1,
    "cohort_rounding": "ceil",
    "clip_norm": 1.0,
    "statistics": "all",
}
# The version that printed the K = 2 ablations began every round with a fresh server buffer; the last one keeps it.
SEMIFL: Table = {"name": "semifl_released", "activity_rate": 0.1, "server_buffers": "fresh"}
SEMIFL_LAST: Table = {**SEMIFL, "server_buffers": "kept"}
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
FEDMATCH_AUTHORS: Table = {
    "name": "fedmatch",
    "activity_rate": 0.05,
    "client_epochs": 1,
    "server_epochs": 1,
    "client_batch": 100,
    "lr": 1e-3,
    "momentum": 0.0,
    "nesterov": False,
    "weight_decay": 0.0,
    "threshold": 0.75,
    "supervised_weight": 10.0,
    "consistency_weight": 1e-2,
    "agreement_weight": 1e-2,
    "l1_weight": 1e-5,
    "l2_weight": 10.0,
    "psi_share": 0.2,
    "helpers": 2,
    "helper_interval": 10,
    "sparsity": 1e-5,
}
PARALLEL: Table = {**EVERYONE, "strong_view": "reference"}
METHODS: dict[str, Table] = {
    "semifl": SEMIFL,
    "fedmatch": FEDMATCH,
    # Five epochs of 500 pictures in batches of ten, as everybody else here; its authors average after 16 steps.
    "fedrgd": {"name": "fedrgd", **PARALLEL, "iterations": 250},
    "fedavg": {"name": "fedavg", **EVERYONE, "weighting": "uniform", "client_buffers": "kept"},
    "heterofl": {"name": "heterofl", **EVERYONE},
}
FEDMATCH_EARLIER: Table = {"name": "fedmatch_earlier", "activity_rate": 0.1, "server_buffers": "fresh"}
RELEASED: dict[str, Table] = {
    "fedmatch": {
        **FEDMATCH,
        "weight_decay": 5e-4,
        "threshold": 0.95,
        "supervised_weight": 1.0,
        "agreement_weight": 1.0,
        "consistency_weight": 0.0,
        "l1_weight": 0.0,
        "l2_weight": 0.0,
        "psi_share": 1.0,
        "helpers": 0,
        "helper_pool": 0,
        "sparsity": 0.0,
        "trained": "convolutions",
        "server_channels": "half",
        "server_optimizer": {"momentum": 0.5},
    },
    "fedrgd": {"name": "fedrgd_released", "activity_rate": 0.1},
}

# The released program starts the global step of parallel training from the server's model, and its momentum then undoes
# what the server has learned. The values of the component table were made that way, so its rows do it too.
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
# FedRGD's authors: 300 epochs of 65,536 pictures in batches of 64, an average after every 16 steps.
FEDRGD_EPOCH = 65_536 // 64 // 16


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
    yield from _figure_cells()
    yield from _author_cells()
    yield from _fl2_cells()


def _semifl_cells() -> Iterator[PaperCell]:
    for partition, values in SSFL["semifl"][1].items():
        for (data, labeled), value in zip(COLUMNS, values, strict=True):
            name = f"{data}-{labeled}-{partition}"
            yield _result(name, "SemiFL", data, labeled, partition, SEMIFL, value)
            last = _result(f"{name}-released", "SemiFL", data, labeled, partition, SEMIFL_LAST, value)
            last.config["method"]["server_batch"] = 250 if labeled > 1000 else 10
            yield last._replace(about=f"{last.about}; as the program's last version", table="", row="", column="")


def _other_federated_cells() -> Iterator[PaperCell]:
    for key in ("fedmatch", "fedrgd"):
        label, by_partition = SSFL[key]
        for partition, values in by_partition.items():
            for (data, labeled), value in zip(COLUMNS, values, strict=True):
                name = f"{data}-{labeled}-{partition}-{key}"
                run = _result(f"{name}-released", label, data, labeled, partition, RELEASED[key], value)
                about = f"{run.about}; as the released program ran it"
                if key == "fedmatch":  # two programs had this name when the value was printed
                    earlier = _result(f"{name}-earlier", label, data, labeled, partition, FEDMATCH_EARLIER, value)
                    yield earlier._replace(about=f"{about} until August 2022", table="", row="", column="")
                    about += " from September 2022 on"
                yield run._replace(about=about)
                itself = _result(name, f"{label} itself", data, labeled, partition, METHODS[key], "")
                if key == "fedrgd":
                    itself.config["model"]["norm"] = "group"
                yield itself
    for partition, printed_values in FL["fedavg"][1].items():
        for data, value in zip(DATA, printed_values, strict=True):
            labeled = _fewest(data)
            for key, label, printed in (("fedavg", "HeteroFL", value), ("heterofl", "HeteroFL itself", "")):
                cell = _result(f"{data}-{partition}-{key}", label, data, labeled, partition, METHODS[key], printed)
                cell.config["data"]["clients_hold"] = "everything"
                yield cell._replace(column=data)


def _centralized_cells() -> Iterator[PaperCell]:
    supervised: Table = {"name": "centralized", "clip_norm": 1.0, "objective": {"name": "supervised"}}
    for data, value in zip(DATA, FULLY, strict=True):
        method = {**supervised, "labels": "all", "batch": 250}
        cell = _central(f"{data}-fully-supervised", "Fully Supervised", data, _fewest(data), method, 400, value)
        yield cell._replace(column=data)
    for (data, labeled), value in zip(COLUMNS, PARTIALLY, strict=True):
        method = {**supervised, "batch": 250 if labeled > 1000 else 10}
        name = f"{data}-{labeled}-partially-supervised"
        yield _central(name, "Partially Supervised", data, labeled, method, 400, value)
    for objective, (label, values) in SSL.items():
        for (data, labeled), value in zip(COLUMNS, values, strict=True):
            method = ssl_rows.method(objective, data)
            epochs = ssl_rows.epochs(method, PICTURES[data] - labeled)
            yield _central(f"{data}-{labeled}-{objective}", label, data, labeled, method, epochs, value)


def _ablation_cells() -> Iterator[PaperCell]:
    for partition in ("k2", "iid"):
        column = PARTITION_NAMES[partition]
        for name in ("cifar10-fully-supervised", "cifar10-4000-partially-supervised"):
            row = COMPONENT[name]["row"]
            yield _same(_centralized_cells(), name, row, "component", column, COMPONENT[name][partition])
        for key, changes in COMPONENTS.items():
            value, label = COMPONENT[key][partition], COMPONENT[key]["row"]
            # The ablated rows were run without Mixup and the full one with it, so the other reading has no value.
            for suffix, mixup, printed in (("", 0.0, value), ("-mixup", 1.0, "")):
                method = {**SEMIFL, "name": "semifl_ablated", **changes, "mix_weight": mixup}
                row = f"{label}, {'with' if mixup else 'without'} Mixup"
                name = f"{partition}-{key}{suffix}"
                yield _ablation(name, row, 4000, partition, method, "component", column, printed)
        full = COMPONENT["alternate-global"]
        name = f"cifar10-4000-{partition}"
        yield _same(_semifl_cells(), name, full["row"], "component", column, full[partition])
        for key, changes in ABLATIONS.items():
            value, row = ABLATION[key][partition], ABLATION[key]["row"]
            method = {**SEMIFL, **changes}
            yield _ablation(f"{partition}-{key}", row, 4000, partition, method, "ablation", column, value)
        yield _same(_semifl_cells(), name, ABLATION["full"]["row"], "ablation", column)
        for labeled in (250, 4000):
            method = {**SEMIFL, "statistics": "server"}
            value, place = SBN_SERVER[partition][labeled], f"{labeled}, {column}"
            yield _ablation(f"{partition}-sbn-server", "server only", labeled, partition, method, "sbn", place, value)
            yield _same(_semifl_cells(), f"cifar10-{labeled}-{partition}", "server and clients", "sbn", place)


def _figure_cells() -> Iterator[PaperCell]:
    """The paper's second figure, which prints no numbers of its own; FedAvg's are those of the component table."""
    for partition in ("k2", "iid"):
        column = PARTITION_NAMES[partition]
        for name in ("cifar10-fully-supervised", "cifar10-4000-partially-supervised"):
            value = COMPONENT[name][partition]
            yield _same(_centralized_cells(), name, COMPONENT[name]["row"], "figure", column, value)
        sgd = {"name": "fedsgd_fixmatch", **PARALLEL, "laps": laps("cifar10", 4000)}
        yield _ablation(f"{partition}-fedsgd-fixmatch", "FedSGD + FixMatch", 4000, partition, sgd, "figure", column, "")
        name = f"cifar10-4000-{partition}-parallel-batch"
        yield _same(_ablation_cells(), name, "FedAvg + FixMatch", "figure", column)
        itself = {"name": "fedavg_fixmatch", **PARALLEL}
        row = "FedAvg + FixMatch, its step from the model that was sent"
        yield _ablation(f"{partition}-fedavg-fixmatch", row, 4000, partition, itself, "figure", column, "")


def _author_cells() -> Iterator[PaperCell]:
    """Two baselines as their own authors ran them, with the numbers that they report."""
    own = _federated("cifar10", 1000, "iid", FEDMATCH_AUTHORS)
    own |= {"rounds": 200, "model": {"name": "resnet", "depth": 9, "norm": "group"}}
    own["method"]["server_batch"] = 100
    row, value = AUTHORS["fedmatch"]
    about = f"FedMatch in its authors' setting, with another ResNet-9; their value: {value}"
    yield PaperCell("fedmatch-authors", about, own, "authors", row, "cifar10", value)
    own = _federated("cifar10", 1000, "iid", {"name": "fedrgd"})
    own["data"]["clients"] = 10
    own |= {"rounds": 300 * FEDRGD_EPOCH, "model": {"name": "resnet", "depth": 18, "norm": "group"}}
    own["method"] |= {
        "activity_rate": 1.0,
        "groups": 2,
        "iterations": 16,
        "threshold": 0.95,
        "client_batch": 64,
        "server_batch": 64,
        "lr": 0.09,  # Their program of June 2020; since March 2021 it has 0.165 for grouped runs, too.
        "weight_decay": 1e-4,
        "warmup_rounds": 5 * FEDRGD_EPOCH,
        "client_buffers": "kept",
        "server_buffers": "kept",
    }
    row, value = AUTHORS["fedrgd"]
    about = f"FedRGD in its authors' setting of 2020, 10 clients; their value: {value}"
    yield PaperCell("fedrgd-authors", about, own, "authors", row, "cifar10", value)


def _fl2_cells() -> Iterator[PaperCell]:
    """A later paper's table; its cells are presets, and in no table of this paper's."""
    for name, label, data, labeled, partition, method, value in fl2_cells.rows(SEMIFL):
        config = _federated(data, labeled, partition, method)
        printed = f"(FL)²'s authors print {value}" if value else "in (FL)²'s table, its value unknown to us"
        about = f"{label}, {data} with {labeled} labels, {PARTITION_NAMES[partition]}; {printed}"
        yield PaperCell(name, about, config, "", "", "", value)


def laps(data: str, labeled: int) -> int:
    """How many batches of ten a client of an even division has: so many laps are a pass over all pictures."""
    return math.ceil((PICTURES[data] - labeled) // CLIENTS / 10)


def _fewest(data: str) -> int:
    return min(labeled for name, labeled in COLUMNS if name == data)


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


def _same(among: Iterator[PaperCell], name: str, row: str, table: str, column: str, value: str = "") -> PaperCell:
    """A cell of one table that stands in another, too, perhaps with more digits."""
    cell = next(cell for cell in among if cell.name == name)
    return cell._replace(table=table, row=row, column=column, value=value or cell.value)


def _about(what: str, value: str) -> str:
    return f"{what}; paper: {value}" if value else f"{what}; not in the paper's tables"


def _federated(data: str, labeled: int, partition: str, method: Table) -> Table:
    """The settings that all rows share."""
    full = dict(method)
    if method["name"] not in ("centralized", "fedavg", "heterofl"):  # whose server trains in rounds
        full["server_batch"] = SERVER_BATCH.get((data, labeled), 10)
    return {
        "rounds": 800,
        "labels_only": False,
        "data": {"name": data, "labeled": labeled, "clients": CLIENTS, "partition": dict(PARTITIONS[partition])},
        "model": {"name": "wide_resnet", "depth": 28, "width": 8 if data == "cifar100" else 2},
        "method": full,
    }

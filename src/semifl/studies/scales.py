"""The paper's cells at a size that a person can wait for: the same methods and settings, smaller data and model.

`tiny` is the embedded digits, minutes for a whole table; `small` is CIFAR-10 with a fast network, ten to fifteen
minutes a cell on one core; `paper` is the published setting, for a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from semifl.toml import Table

TINY_MODEL: Table = {"name": "wide_resnet", "depth": 10, "width": 1}
SMALL_MODEL: Table = {"name": "fast_cnn", "widths": [16, 64, 64]}
# How it was chosen: results/cifar10/trials.md. Batches are large because the network's BatchNorm is noisy in small
# ones, the threshold low because its head is unsure; momentum is fresh because a round has few steps to undo stale one.
# Rounds are few, so they begin with what the labels alone have learned.
SMALL_RECIPE: Table = {
    "client_batch": 50,
    "server_batch": 50,
    "threshold": 0.6,
    "statistics": "cohort",
    "client_buffers": "fresh",
    "server_buffers": "fresh",
}
# Four clients and not ten: from as many pictures, more rounds learn more (the same page).
SMALL_COHORT = 0.04
SMALL_ROUNDS = 60
FEW = 1000  # labels, of which the server takes five epochs in a round, as published


def tiny(config: Table) -> Table:
    """Digits as in the demo: 30 labels, 10 clients with 140 pictures, a small Wide ResNet, 20 rounds."""
    small = _resized(config, {"name": "digits", "labeled": 30, "clients": 10}, TINY_MODEL)
    method = small["method"]
    if method["name"] == "centralized":
        # Batches of ten as everywhere here; a pass over 30 labels is three steps, so it takes more of them.
        supervised = method["objective"]["name"] == "supervised"
        small["rounds"] = 100 if supervised and method.get("labels") != "all" else 20
        return _with(small, method, batch=10, ema=min(method.get("ema", 0.0), 0.99), objective=_cheaper(method))
    changes: Table = {"activity_rate": 0.4, "client_batch": 10, **_server_batch(method)}
    if method["name"] != "fedmatch" and "threshold" in _fields(method["name"]):
        changes["threshold"] = 0.7  # as in the demo: a model that has seen 30 pictures is rarely surer
    if "server_buffers" in _fields(method["name"]):
        # An epoch over 30 labels is three steps: a buffer that begins anew in every round never gets going, and the
        # clients carry the model away. At the published sizes it is 25 steps or more.
        changes["server_buffers"] = "kept"
    if "iterations" in method:
        changes["iterations"] = 70  # five epochs, as everybody else
    if "warmup_rounds" in method:
        changes["warmup_rounds"] = 0  # a sixtieth of 20 rounds
    if method["name"] == "fedsgd_fixmatch":
        changes["laps"] = 14  # batches of ten: a pass over a client's 140 pictures
    return _with(small | {"rounds": 20}, method, **changes)


def small(config: Table) -> Table:
    """CIFAR-10 with the labels and clients of the cell, a fast network, 60 rounds of four clients."""
    data = {"name": "cifar10", **{key: config["data"][key] for key in ("labeled", "clients")}}
    small = _resized(config, data, SMALL_MODEL)
    method = small["method"]
    if method["name"] == "centralized":
        return _small_central(small, method)
    known = _fields(method["name"])
    changes = {key: value for key, value in SMALL_RECIPE.items() if key in known}
    if method["name"] == "fedsgd_fixmatch":
        changes["laps"] = 10  # a pass over a client's 460 to 500 pictures
    if method["name"] == "fedmatch" and "threshold" not in method:
        changes.pop("threshold")  # its authors' own is low already
    if method.get("statistics") == "server":
        changes.pop("statistics")  # a cell that is about them
    if method.get("activity_rate") == 0.1:
        changes["activity_rate"] = SMALL_COHORT
    if "warmup_rounds" in method:
        changes["warmup_rounds"] = 0  # a sixtieth of 60 rounds
    small["rounds"], changes["lr"] = SMALL_ROUNDS, 0.1
    if method["name"] == "fedrgd":
        _often_averaged(small, method, changes)
    if "server_epochs" in known:  # else it learns at clients alone
        small["start"] = "labels"
        if data["labeled"] > FEW:
            changes["server_epochs"] = 1
    return _with(small, method, **changes)


def _often_averaged(small: Table, method: Table, changes: Table) -> None:
    """FedRGD collapses at once with the others' epochs between two averages, rate or threshold (the same page)."""
    changes["lr"] = 0.03
    changes.pop("threshold")  # its authors' own
    if method.get("iterations"):  # in this paper's setting: its authors' own number, and as many steps in all
        small["rounds"], changes["iterations"] = SMALL_ROUNDS * 50 // 16, 16


def _small_central(small: Table, method: Table) -> Table:
    """As many pictures in all as the federated rows see, or less where a network has learned all it can before."""
    objective = method["objective"]
    if objective["name"] != "supervised":
        if objective["name"] in ("fixmatch", "uda"):
            objective = {**objective, "threshold": SMALL_RECIPE["threshold"]}
        ema = min(method.get("ema", 0.0), 0.99)
        return _with(small | {"rounds": 20, "start": "labels"}, method, batch=32, lr=0.1, ema=ema, objective=objective)
    if method.get("labels") == "all":
        return _with(small | {"rounds": 16}, method, batch=50, lr=0.1)
    # A federated server has 120 passes over 4,000 labels, with its start; alone they gain nothing from more than 80.
    passes, batch = (120, 25) if small["data"]["labeled"] <= FEW else (80, 50)
    return _with(small | {"rounds": passes}, method, batch=batch, lr=0.1)


def paper(config: Table) -> Table:
    return config


SCALES: dict[str, Callable[[Table], Table]] = {"tiny": tiny, "small": small, "paper": paper}


def _resized(config: Table, data: Table, model: Table) -> Table:
    norm = {key: value for key, value in config.get("model", {}).items() if key == "norm"}
    kept = {key: value for key, value in config["data"].items() if key == "clients_hold"}
    return {
        **config,
        "threads": 1,  # the model is too small to share between threads
        "data": {**data, **kept, "partition": dict(config["data"].get("partition", {"name": "iid"}))},
        "model": {**model, **norm},
        "method": dict(config["method"]),
    }


def _cheaper(method: Table) -> Table:
    """ReMixMatch with two strong views and not eight, as in some re-runs of it."""
    objective: Table = method["objective"]
    return {**objective, "strong_views": 2} if objective["name"] == "remixmatch" else objective


def _server_batch(method: Table) -> Table:
    """Ten, where the server trains."""
    return {"server_batch": 10} if "server_batch" in _fields(method["name"]) else {}


def _with(config: Table, method: Table, **changes: Any) -> Table:
    return {**config, "method": {**method, **changes}}


def _fields(method: str) -> list[str]:
    import dataclasses

    from semifl import registry
    from semifl.configuration.config import METHODS

    return [field.name for field in dataclasses.fields(registry.find(METHODS, method, "method.name"))]

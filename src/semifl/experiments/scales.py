"""The paper's cells at a size that a person can wait for: the same methods and settings, smaller data and model.

`tiny` is the embedded digits, minutes for a whole table; `small` is Fashion-MNIST with a small model, hours; `paper`
is the published setting, for a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from semifl.experiments.toml import Table

TINY_MODEL: Table = {"name": "wide_resnet", "depth": 10, "width": 1}


def tiny(config: Table) -> Table:
    """Digits as in the demo: 30 labels, 10 clients with 140 pictures, a small Wide ResNet, 20 rounds."""
    small = _resized(config, {"name": "digits", "labeled": 30, "clients": 10}, TINY_MODEL)
    method = small["method"]
    if method["name"] == "centralized":
        # Batches of ten as everywhere here; a pass over 30 labels is three steps, so it takes more of them.
        supervised = method["objective"]["name"] == "supervised"
        small["rounds"] = 100 if supervised and method.get("labels") != "all" else 20
        return _with(small, method, batch=10, ema=min(method.get("ema", 0.0), 0.99))
    changes: Table = {"activity_rate": 0.4, "client_batch": 10, **_server_batch(method)}
    if method["name"] != "fedmatch" and "threshold" in _fields(method["name"]):
        changes["threshold"] = 0.7  # as in the demo: a model that has seen 30 pictures is rarely surer
    if method.get("iterations"):
        changes["iterations"] = 70  # five epochs, as everybody else
    return _with(small | {"rounds": 20}, method, **changes)


def small(config: Table) -> Table:
    """Fashion-MNIST: 250 labels, 100 clients, a small Wide ResNet, 100 rounds."""
    small = _resized(config, {"name": "fashion_mnist", "labeled": 250, "clients": 100}, TINY_MODEL)
    method = small["method"]
    if method["name"] == "centralized":
        small["rounds"] = 400 if method["objective"]["name"] == "supervised" else 20
        return _with(small, method, batch=min(method["batch"], 64))
    return _with(small | {"rounds": 100}, method, **_server_batch(method))


def paper(config: Table) -> Table:
    return config


SCALES: dict[str, Callable[[Table], Table]] = {"tiny": tiny, "small": small, "paper": paper}


def _resized(config: Table, data: Table, model: Table) -> Table:
    norm = {key: value for key, value in config.get("model", {}).items() if key == "norm"}
    return {
        **config,
        "threads": 1,  # the model is too small to share between threads
        "data": {**data, "partition": dict(config["data"].get("partition", {"name": "iid"}))},
        "model": {**model, **norm},
        "method": dict(config["method"]),
    }


def _server_batch(method: Table) -> Table:
    """Ten, where the server trains."""
    return {"server_batch": 10} if "server_batch" in _fields(method["name"]) else {}


def _with(config: Table, method: Table, **changes: Any) -> Table:
    return {**config, "method": {**method, **changes}}


def _fields(method: str) -> list[str]:
    import dataclasses

    from semifl import registry
    from semifl.experiments.config import METHODS

    return [field.name for field in dataclasses.fields(registry.find(METHODS, method, "method.name"))]

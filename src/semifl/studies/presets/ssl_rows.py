"""The semi-supervised rows of the result table, which the paper quotes: each method's settings, per data set.

From the methods' own papers, or from the re-run that the quoted number comes from (MixMatch's authors for Π-Model,
Pseudo-Labeling and Mean Teacher; FixMatch's for UDA). `tests/unit/studies/test_presets.py` cites each value.
"""

from __future__ import annotations

import math
from typing import Any

from semifl.toml import Table

STEPS = 2**20  # of the semi-supervised literature
BATCH = 64
DATA = ("cifar10", "svhn", "cifar100")

# Keys of [method.objective]; a tuple has one value for each data set. Π-Model and Mean Teacher were not run on
# CIFAR-100 by the authors of these values, so CIFAR-10's stand there.
OBJECTIVES: dict[str, Table] = {
    "pi_model": {"ratio": 1, "unlabeled_weight": (20.0, 5.0, 20.0), "ramp_up": 0.4},
    "pseudo_label": {"ratio": 1, "threshold": 0.95, "unlabeled_weight": 1.0, "ramp_from": 0.0, "ramp_to": 0.4},
    "mean_teacher": {"ratio": 1, "unlabeled_weight": (50.0, 150.0, 50.0)},
    "mixmatch": {"ratio": 1, "unlabeled_weight": (75.0, 250.0, 150.0)},
    "uda": {"ratio": 7},
    "remixmatch": {"ratio": 1, "strong_views": 8},
    "fixmatch": {"ratio": 7},
}
# Keys of [method] beside the optimiser's; the averages over steps that are tested.
METHODS: dict[str, Table] = {
    "uda": {"ema": 0.9999, "annealing": "fixmatch"},
    "fixmatch": {"ema": 0.999, "annealing": "fixmatch", "weight_decay": (5e-4, 5e-4, 1e-3)},
}
USUAL: Table = {"batch": BATCH, "lr": 0.03, "ema": 0.999}


def method(objective: str, data: str) -> Table:
    """The section [method] of a row, for one data set."""
    own = {key: _of(value, data) for key, value in OBJECTIVES[objective].items()}
    rest = {key: _of(value, data) for key, value in METHODS.get(objective, {}).items()}
    return {"name": "centralized", **USUAL, **rest, "objective": {"name": objective, **own}}


def epochs(method: Table, unlabeled: int) -> int:
    """Passes over the unlabeled pictures that make the promised number of steps, at `ratio` × batch pictures a step."""
    pictures = int(method["objective"]["ratio"]) * int(method["batch"])
    return math.ceil(STEPS / math.ceil(unlabeled / pictures))


def _of(value: Any, data: str) -> Any:
    return value[DATA.index(data)] if isinstance(value, tuple) else value

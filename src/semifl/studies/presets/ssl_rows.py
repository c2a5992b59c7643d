"""The semi-supervised rows of the result table, which the paper quotes: each method's settings.

The quoted rows are those of FixMatch's Table 2, in which FixMatch's authors ran all seven methods in one program
(google-research/fixmatch). Settings are that program's defaults: which flags its authors passed for a data set is not
recorded in it. `tests/unit/studies/test_presets.py` cites each value.
"""

from __future__ import annotations

import math

from semifl.toml import Table

STEPS = 2**20  # of the semi-supervised literature
BATCH = 64
# Keys of [method] beside the objective and the weight decay, the same for all seven.
OPTIMIZATION: Table = {"batch": BATCH, "lr": 0.03, "annealing": "fixmatch", "ema": 0.999}
OBJECTIVES: dict[str, Table] = {
    "pi_model": {"ratio": 1, "unlabeled_weight": 10.0, "ramp": "linear", "ramp_up": 0.4, "stop_gradient": True},
    "pseudo_label": {"ratio": 1, "unlabeled_weight": 1.0, "threshold": 0.95, "ramp_from": 0.0, "ramp_to": 0.4},
    "mean_teacher": {"ratio": 1, "unlabeled_weight": 50.0, "ramp": "linear", "ramp_up": 0.4},
    "mixmatch": {"ratio": 1, "unlabeled_weight": 100.0, "mix_beta": 0.5},
    "uda": {"ratio": 7, "threshold": 0.95, "temperature": 1.0},
    # The program leaves the number of strong views to a flag; ReMixMatch's authors take 8.
    "remixmatch": {"ratio": 1, "strong_views": 8},
    "fixmatch": {"ratio": 7},
}


def method(objective: str, data: str) -> Table:
    """Return the section [method] of a row for one data set."""
    decay = 1e-3 if (objective, data) == ("fixmatch", "cifar100") else 5e-4
    choice = {"name": objective, **OBJECTIVES[objective]}
    return {"name": "centralized", **OPTIMIZATION, "weight_decay": decay, "objective": choice}


def epochs(method: Table, unlabeled: int) -> int:
    """Return the passes over the unlabeled pictures that make `STEPS` steps, at `ratio` × batch pictures a step."""
    pictures = int(method["objective"]["ratio"]) * int(method["batch"])
    return math.ceil(STEPS / math.ceil(unlabeled / pictures))

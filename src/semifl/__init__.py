"""A server with a few labels trains a classifier together with clients whose data have none and never leave them."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semifl.api.data import FederatedData
    from semifl.api.result import Classifier, Predictions, Result
    from semifl.api.training import load, train
    from semifl.configuration.health import Health
    from semifl.errors import RunStopped, UserError
    from semifl.methods.balanced import Balanced
    from semifl.methods.semifl import SemiFL

# How long threads wait for each other by spinning: long enough for the gap between two layers, but not until another
# program gives the core back, which can make a step a hundred times slower (docs/decisions/0005). torch reads it once,
# when it is imported, and nothing of semifl is imported before this line.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")

__version__ = "0.1.0"
__all__ = [
    "Balanced",
    "Classifier",
    "FederatedData",
    "Health",
    "Predictions",
    "Result",
    "RunStopped",
    "SemiFL",
    "UserError",
    "load",
    "train",
]

# Public names are loaded when they are first used: `semifl --help` must not wait for torch.
_HOMES = {
    "Balanced": "semifl.methods.balanced",
    "Classifier": "semifl.api.result",
    "FederatedData": "semifl.api.data",
    "Health": "semifl.configuration.health",
    "Predictions": "semifl.api.result",
    "Result": "semifl.api.result",
    "RunStopped": "semifl.errors",
    "SemiFL": "semifl.methods.semifl",
    "UserError": "semifl.errors",
    "load": "semifl.api.training",
    "train": "semifl.api.training",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

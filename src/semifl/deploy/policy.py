"""policy.toml: what a site lets out and what it lets in. It lies in the site's kit, and only the site can change it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from pathlib import Path

from semifl.errors import UserError
from semifl.experiments.config import from_section, read, refuse_unknown

TEMPLATE = """\
# What this site lets out and what it lets in. The hub cannot read or change this file.
# The weights of the trained model and the number of pictures they rest on leave in any case.

[share]
counts = true            # how many pictures there are, and how many of them the model is sure of
training = true          # mean loss, and how often both views agree
confidence = true        # how sure the model is, as a mean and as ten bars
class_histogram = false  # how many pictures the model gives to each class
statistics = false       # BatchNorm statistics, for method.statistics = "cohort" or "all"
accuracy = false         # how many of this site's own labels (--labels) the model gets right

[limits]
minimum_examples = 1     # with fewer sure pictures than this the site abstains
largest_picture = 256    # side in pixels that the hub may ask for
most_parameters = 100000000  # of a model that the hub may send
most_epochs = 100        # over the pictures in a round

[privacy]
clip = 0.0               # largest norm of the update that leaves; 0 does not clip
noise = 0.0              # standard deviation of Gaussian noise, in units of clip; 0 adds none
delta = 1e-5             # the δ for which the spent ε is reckoned
largest_epsilon = 0.0    # abstain once this ε is spent; 0 never
"""


@dataclass(frozen=True)
class Share:
    counts: bool = True
    training: bool = True
    confidence: bool = True
    class_histogram: bool = False
    statistics: bool = False
    accuracy: bool = False


@dataclass(frozen=True)
class Limits:
    minimum_examples: int = 1
    largest_picture: int = 256
    most_parameters: int = 100_000_000
    most_epochs: int = 100

    def __post_init__(self) -> None:
        for each in fields(self):
            if getattr(self, each.name) < 1:
                raise ValueError(f"{each.name} must be at least 1, not {getattr(self, each.name)}")


@dataclass(frozen=True)
class Privacy:
    clip: float = 0.0
    noise: float = 0.0
    delta: float = 1e-5
    largest_epsilon: float = 0.0

    def __post_init__(self) -> None:
        for name in ("clip", "noise", "largest_epsilon"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")
        if not 0 < self.delta < 1:
            raise ValueError(f"delta must lie between 0 and 1, not {self.delta}")
        if self.noise and not self.clip:
            raise ValueError("noise needs clip: without a largest norm no amount of noise protects anything")
        if self.largest_epsilon and not self.noise:
            raise ValueError("largest_epsilon needs noise: without it nothing bounds what is given away")


@dataclass(frozen=True)
class Policy:
    share: Share = field(default_factory=Share)
    limits: Limits = field(default_factory=Limits)
    privacy: Privacy = field(default_factory=Privacy)


def read_policy(path: Path) -> Policy:
    """The file; a mistake in it stops the site, for a policy that is not understood protects nobody."""
    table = read(path)
    parts = {"share": Share, "limits": Limits, "privacy": Privacy}
    try:
        refuse_unknown(table, list(parts), "")
        for name, section in table.items():
            if not isinstance(section, dict):
                raise UserError(f"{name} must be a section, [{name}], not a value")
        return Policy(**{name: from_section(cls, table.get(name, {}), name) for name, cls in parts.items()})
    except UserError as error:
        raise UserError(f"{path}: {error}") from error

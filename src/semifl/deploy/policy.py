"""policy.toml: what a site lets out and what it lets in. It lies in the site's kit, and only the site can change it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from pathlib import Path

from semifl.errors import UserError
from semifl.experiments.config import from_section, read, refuse_unknown

LEAST_NOISE = 0.1  # with it a single update costs ε ≈ 92 at δ = 1e-5

TEMPLATE = """\
# What this site lets out and what it lets in. Nobody else can change it; a refusal tells the hub which limit it met.
# How training changed the model, and on about how many pictures that rests, leaves in any case.

[share]
counts = true            # how many pictures there are, and how many of them the model is sure of
training = true          # mean loss, and how often both views agree
confidence = true        # how sure the model is, as a mean and as ten bars
class_histogram = false  # how many pictures the model gives to each class
statistics = false       # BatchNorm statistics, for method.statistics = "cohort" or "all"
accuracy = false         # how many of this site's own labels (--labels) there are, and the model gets right

[limits]
minimum_examples = 5     # with fewer sure pictures the site abstains; figures about fewer pictures stay here
smallest_count = 5       # numbers of pictures leave as the nearest multiple of this; 1 leaves them as they are
largest_picture = 256    # side in pixels that the hub may ask for
most_parameters = 100000000  # of a model that the hub may send
most_epochs = 100        # over the pictures in a round
most_steps = 100000      # of training in a round
most_minutes = 720.0     # that one letter of the hub may keep this machine busy

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
    minimum_examples: int = 5
    smallest_count: int = 5
    largest_picture: int = 256
    most_parameters: int = 100_000_000
    most_epochs: int = 100
    most_steps: int = 100_000
    most_minutes: float = 720.0

    def __post_init__(self) -> None:
        for each in fields(self):
            if not 1 <= getattr(self, each.name) < 1e12:
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
        if 0 < self.noise < LEAST_NOISE:
            raise ValueError(f"noise below {LEAST_NOISE} protects nothing, but is {self.noise}")
        if self.noise and not self.clip:
            raise ValueError("noise needs clip: without a largest norm no amount of noise protects anything")
        if self.largest_epsilon and not self.noise:
            raise ValueError("largest_epsilon needs noise: without it nothing bounds what is given away")


@dataclass(frozen=True)
class Policy:
    share: Share = field(default_factory=Share)
    limits: Limits = field(default_factory=Limits)
    privacy: Privacy = field(default_factory=Privacy)

    @property
    def shares_statistics(self) -> bool:
        """They carry no noise, so noise on the weights keeps them as well."""
        return self.share.statistics and not self.privacy.noise


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

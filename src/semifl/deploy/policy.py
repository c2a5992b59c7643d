"""policy.toml: what a site lets out and what it lets in. It lies in the site's kit, and only the site can change it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from semifl.configuration.config import from_section, read, refuse_unknown
from semifl.errors import UserError
from semifl.fields import Checked, NotNegative, Range

Limit = Range(1)
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
most_minutes = 720.0     # that one request of the hub may keep this machine busy
most_gigabytes = 16.0    # of memory that training for the hub may take
largest_features = 8.0   # GB of disk for what a frozen backbone makes of this site's pictures, while a run lasts
largest_memory = 20.0    # GB of disk for what this site remembers of runs; the longest untouched are forgotten first

[privacy]
clip = 0.0               # largest norm of the update that leaves; 0 does not clip
noise = 0.0              # standard deviation of Gaussian noise, in units of clip; 0 adds none
delta = 1e-5             # the δ for which the spent ε is computed
largest_epsilon = 0.0    # abstain once this ε is spent; 0 never
"""


@dataclass(frozen=True)
class Share(Checked):
    counts: bool = True
    training: bool = True
    confidence: bool = True
    class_histogram: bool = False
    statistics: bool = False
    accuracy: bool = False


@dataclass(frozen=True)
class Limits(Checked):
    minimum_examples: Annotated[int, Limit] = 5
    smallest_count: Annotated[int, Limit] = 5
    largest_picture: Annotated[int, Limit] = 256
    most_parameters: Annotated[int, Limit] = 100_000_000
    most_epochs: Annotated[int, Limit] = 100
    most_steps: Annotated[int, Limit] = 100_000
    most_minutes: Annotated[float, Limit] = 720.0
    most_gigabytes: Annotated[float, Limit] = 16.0
    largest_features: NotNegative = 8.0
    largest_memory: NotNegative = 20.0


@dataclass(frozen=True)
class Privacy(Checked):
    clip: NotNegative = 0.0
    noise: NotNegative = 0.0
    delta: Annotated[float, Range(0, 1, open_least=True, open_most=True)] = 1e-5
    largest_epsilon: NotNegative = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
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

    def rounded(self, count: Any) -> Any:
        """The nearest multiple of the smallest count, of a number of pictures, a sum over them, or a list of either."""
        if isinstance(count, list):
            return [self.rounded(each) for each in count]
        unit = self.limits.smallest_count
        return count if unit == 1 else unit * int(count / unit + 0.5)


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

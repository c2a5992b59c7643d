"""A tiny world for tests: forty-eight flat pictures of 8 × 8 in three easy classes, and a small model."""

from dataclasses import dataclass, fields

import torch
from torch import nn

from semifl import registry
from semifl.configuration.config import METHODS
from semifl.data.dataset import Dataset, Facts

# Two kinds of SemiFL that every promise is tested on: with memory, and with all that the released program does.
REFERENCE = {"name": "semifl_released"}
KEPT = {**REFERENCE, "statistics": "server", "strong_view": "fixmatch", "cohort_rounding": "floor"}

WORLDS = {"heterofl": {"model": {"name": "cnn", "width": 4}}}  # of methods that need another: a model that can be cut

COLOURS = torch.tensor([[220, 40, 40], [40, 220, 40], [40, 40, 220]])


@dataclass(frozen=True)
class ToyData:
    """Named in a configuration as `toys:ToyData`."""

    per_class: int = 16
    noise: int = 30

    def load(self) -> Dataset:
        generator = torch.Generator().manual_seed(0)
        labels = torch.arange(3).repeat(self.per_class)
        test_labels = torch.arange(3).repeat(6)
        facts = Facts(("red", "green", "blue"), (0.4, 0.4, 0.4), (0.3, 0.3, 0.3), True, 3, 8)
        return Dataset(facts, self._paint(labels, generator), labels, self._paint(test_labels, generator), test_labels)

    def _paint(self, labels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        noise = torch.randint(-self.noise, self.noise + 1, (len(labels), 3, 8, 8), generator=generator)
        return (COLOURS[labels][:, :, None, None] + noise).clamp(0, 255).to(torch.uint8)


@dataclass(frozen=True)
class TwoKinds:
    """Two classes that overlap, three pictures in four of the first; named as `toys:TwoKinds`."""

    pictures: int = 64

    def load(self) -> Dataset:
        generator = torch.Generator().manual_seed(1)
        labels, test_labels = ((torch.arange(count) % 4 == 3).long() for count in (self.pictures, 40))
        facts = Facts(("healthy", "ill"), (0.5,), (0.25,), True, 1, 8)
        return Dataset(facts, self._paint(labels, generator), labels, self._paint(test_labels, generator), test_labels)

    def _paint(self, labels: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        grey = 110 + 20 * labels + torch.randint(-40, 41, (len(labels),), generator=generator)
        noise = torch.randint(-30, 31, (len(labels), 1, 8, 8), generator=generator)
        return (grey[:, None, None, None] + noise).clamp(0, 255).to(torch.uint8)


def two_kinds_table(**keys: object) -> dict:
    table = toy_table()
    return {**table, "data": {"name": "toys:TwoKinds", "labeled": 24, "clients": 3, "validation": 0.5}, **keys}


def toy_model(channels: int, classes: int, hidden: int = 6) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(channels, hidden, 3, padding=1),
        nn.BatchNorm2d(hidden),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(hidden, classes),
    )


def linear_model(channels: int, size: int, classes: int) -> nn.Module:
    """Without a norm: what one picture teaches does not depend on the others of its batch."""
    return nn.Sequential(nn.Flatten(), nn.Linear(channels * size * size, classes))


def toy_table(**method: object) -> dict:
    return {
        "rounds": 3,
        "threads": 1,
        "data": {"name": "toys:ToyData", "labeled": 6, "clients": 4},
        "model": {"name": "toys:toy_model"},
        "method": {
            "activity_rate": 0.5,
            "threshold": 0.3,
            "client_epochs": 2,
            "server_epochs": 2,
            "server_batch": 4,
            **method,
        },
    }


def method_table(name: str, seed: int = 0) -> dict:
    """A toy federation for any method: fields the method does not have are left out."""
    toy = toy_table()
    known = {field.name for field in fields(registry.find(METHODS, name, "method.name"))}
    toy["method"] = {"name": name, **{key: value for key, value in toy["method"].items() if key in known}}
    return {**toy, **WORLDS.get(name, {}), "rounds": 2, "seed": seed, "labels_only": False}

"""What may be passed as a model: a module, something that builds one, one of ours, or a name."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from torch import nn

from semifl import registry
from semifl.api.names import name_of
from semifl.configuration.config import MODELS, Chosen, decode
from semifl.errors import UserError
from semifl.learning.weights import digest
from semifl.registry import HANDED_OVER
from semifl.toml import Table


class Buildable(Protocol):
    """One of ours, such as WideResNet(depth=10)."""

    def build(self, channels: int, size: int, classes: int) -> nn.Module: ...


Model = nn.Module | Callable[..., nn.Module] | Buildable | str


class Given:
    """A module as it was handed over, weights and all; whoever calls gets a copy of their own."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, first_weights: str = "") -> nn.Module:
        """`first_weights` is their fingerprint; it is only there to be written into config.toml."""
        return copy.deepcopy(self.module)

    def __reduce__(self) -> tuple[Any, ...]:
        # As one string of bytes: workers are sent every tensor by a file handle of its own, and those are few.
        return _unpack, (pickle.dumps(self.module),)


def _unpack(packed: bytes) -> Given:
    return Given(pickle.loads(packed))


def choose(model: Model) -> tuple[Chosen[Callable[..., Any]], Table]:
    """The model as a configuration has it: how to build it, under which name, with which keys."""
    if isinstance(model, str):
        config = decode({"model": {"name": model}})
        return config.model, config.model_keys
    if isinstance(model, nn.Module):
        weights = {name: tensor for name, tensor in model.state_dict().items() if tensor.numel()}
        keys = {"first_weights": digest(weights)}
        return Chosen(f"{HANDED_OVER}{type(model).__name__}", Given(copy.deepcopy(model))), keys
    if dataclasses.is_dataclass(model) and not isinstance(model, type) and hasattr(model, "build"):
        keys = {each.name: getattr(model, each.name) for each in dataclasses.fields(model)}
        return Chosen(registry.name_of(MODELS, model), model.build), keys
    if not callable(model):
        raise UserError(f"model must be a torch module, something that builds one, or a name, not {model!r}")
    # A bound method is asked what it wants like any function; only our own are given everything.
    return Chosen(name_of(model), partial(model) if hasattr(model, "__self__") else model), {}

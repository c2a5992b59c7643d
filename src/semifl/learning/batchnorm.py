"""Static BatchNorm (sBN): batch statistics while training, pooled statistics of whole data sets for inference.

A layer never tracks running statistics. Before inference its statistics are computed by one more pass over the
data, site by site and block by block, and pooled by the formula of the paper's appendix, so no picture has to travel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm


class Moments(NamedTuple):
    """Of the values that met one layer: how many per channel, their mean and unbiased variance (float64)."""

    number: int
    mean: Tensor
    var: Tensor


BatchNormStats = dict[str, Moments]  # by the name of the layer; empty for a model without BatchNorm


def layers(module: nn.Module) -> dict[str, _BatchNorm]:
    return {name: layer for name, layer in module.named_modules() if isinstance(layer, _BatchNorm)}


def stop_tracking(module: nn.Module) -> None:
    """Make BatchNorm use batch statistics in training mode and its buffers in evaluation mode, tracking nothing."""
    for layer in layers(module).values():
        if layer.running_mean is None:  # built without buffers: give it some, or it could never use pooled statistics
            layer.register_buffer("running_mean", torch.zeros(layer.num_features))
            layer.register_buffer("running_var", torch.ones(layer.num_features))
        layer.track_running_stats = False


def load(module: nn.Module, stats: BatchNormStats) -> None:
    """Put pooled statistics where evaluation mode looks for them."""
    for name, layer in layers(module).items():
        assert layer.running_mean is not None
        assert layer.running_var is not None
        layer.running_mean.copy_(stats[name].mean)
        layer.running_var.copy_(stats[name].var)
        if layer.num_batches_tracked is not None:
            layer.num_batches_tracked.zero_()  # counts passes of this process, which is nobody's business


def collect(module: nn.Module, blocks: Iterable[Tensor]) -> BatchNormStats:
    """One pass over the blocks, normalising each by itself; what each BatchNorm layer saw, pooled in order."""
    pooled: BatchNormStats = {}
    module.eval()  # dropout would make the statistics random
    for layer in layers(module).values():
        layer.train()
    with torch.no_grad(), _recording(module) as seen:
        for block in blocks:
            module(block)
            pooled = pool([pooled, seen()]) if pooled else seen()
    return pooled


def pool(parts: Iterable[BatchNormStats]) -> BatchNormStats:
    """The statistics of the union, from each part's count, mean and variance (appendix, sBN).

    μ = Σ N_m μ_m / Σ N_m,   σ² = Σ [(N_m − 1) σ_m² + N_m (μ_m − μ)²] / (Σ N_m − 1)
    """
    parts = [part for part in parts if part]
    if not parts:
        return {}
    return {name: _pool_layer([part[name] for part in parts]) for name in parts[0]}


def _pool_layer(parts: list[Moments]) -> Moments:
    number = sum(part.number for part in parts)
    mean = sum((part.number * part.mean for part in parts[1:]), parts[0].number * parts[0].mean) / number
    spread = [(part.number - 1) * part.var + part.number * (part.mean - mean) ** 2 for part in parts]
    return Moments(number, mean, sum(spread[1:], spread[0]) / (number - 1))


@contextmanager
def _recording(module: nn.Module) -> Iterator[Any]:
    """Let the layers write each batch's own mean and unbiased variance into their buffers, at no extra arithmetic."""
    named = layers(module)
    counts: dict[str, int] = {}

    def count(name: str) -> Any:
        def hook(_layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            counts[name] = inputs[0].numel() // inputs[0].shape[1]

        return hook

    def seen() -> BatchNormStats:
        return {name: _moments(counts[name], layer) for name, layer in named.items()}

    before = {name: (layer.momentum, layer.track_running_stats) for name, layer in named.items()}
    with ExitStack() as stack:
        for name, layer in named.items():
            stack.callback(layer.register_forward_pre_hook(count(name)).remove)
            # A "running" average with momentum 1 is the statistic of the last batch alone.
            layer.momentum, layer.track_running_stats = 1.0, True
        try:
            yield seen
        finally:
            for name, layer in named.items():
                layer.momentum, layer.track_running_stats = before[name]


def _moments(number: int, layer: _BatchNorm) -> Moments:
    assert layer.running_mean is not None
    assert layer.running_var is not None
    return Moments(number, layer.running_mean.detach().double().cpu(), layer.running_var.detach().double().cpu())

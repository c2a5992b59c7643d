"""Static BatchNorm (sBN): batch statistics while training, pooled statistics of whole data sets for inference.

A layer never tracks running statistics. Before inference its statistics are computed by one more pass over the
data, site by site and block by block, and pooled by the formula of the paper's appendix, so no picture has to travel.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

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
        if name not in stats:  # a layer that the forward pass does not use
            continue
        assert layer.running_mean is not None
        assert layer.running_var is not None
        layer.running_mean.copy_(stats[name].mean)
        layer.running_var.copy_(stats[name].var)
        if layer.num_batches_tracked is not None:
            layer.num_batches_tracked.zero_()  # counts passes of this process, which is nobody's business


def collect(module: nn.Module, blocks: Iterable[Tensor]) -> BatchNormStats:
    """One pass over the blocks, normalising each by itself; what each BatchNorm layer saw, pooled in order."""
    named = layers(module)
    if not named:
        return {}
    seen: dict[str, list[Moments]] = {}
    module.eval()  # dropout would make the statistics random
    with torch.no_grad(), ExitStack() as stack:
        for name, layer in named.items():
            stack.enter_context(_recording(layer, seen.setdefault(name, [])))
        for block in blocks:
            module(block)
    return {name: _pool_layer(parts) for name, parts in seen.items() if parts}


def values_per_picture(module: nn.Module, channels: int, size: int) -> dict[str, int]:
    """How many values of each channel one picture brings to each layer that the forward pass uses."""
    device = next(module.parameters()).device
    of_two = collect(module, [torch.zeros(2, channels, size, size, device=device)])  # one may be too few for a variance
    return {name: moments.number // 2 for name, moments in of_two.items()}


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
def _recording(layer: _BatchNorm, seen: list[Moments]) -> Iterator[None]:
    """Let a layer note each batch's own mean and unbiased variance, which its kernel computes anyway."""

    def note(_layer: nn.Module, inputs: tuple[Tensor, ...], _output: Tensor) -> None:
        assert layer.running_mean is not None
        assert layer.running_var is not None
        number = inputs[0].numel() // inputs[0].shape[1]
        seen.append(Moments(number, _copy(layer.running_mean), _copy(layer.running_var)))

    before = layer.momentum, layer.track_running_stats
    layer.train()
    # A "running" average with momentum 1 is the statistic of the last batch alone.
    layer.momentum, layer.track_running_stats = 1.0, True
    for buffer in (layer.running_mean, layer.running_var):
        assert buffer is not None
        buffer.zero_()  # a NaN left there would survive even a factor of 0
    handle = layer.register_forward_hook(note)
    try:
        yield
    finally:
        handle.remove()
        layer.momentum, layer.track_running_stats = before


def _copy(buffer: Tensor) -> Tensor:
    return buffer.detach().to("cpu", torch.float64, copy=True)

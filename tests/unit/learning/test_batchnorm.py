"""Static BatchNorm: pooled statistics against NumPy over the union of all sites."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from semifl.learning import batchnorm
from semifl.learning.batchnorm import (
    BatchNormStats,
    Moments,
    collect,
    layers,
    load,
    pool,
    stop_tracking,
    values_per_picture,
)

SITES = (7, 20, 3, 12)  # pictures at each site
BLOCK = 5


def deep_network() -> nn.Module:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.Conv2d(4, 6, 3, stride=2),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(6 * 9, 5),
        nn.BatchNorm1d(5),
        nn.Linear(5, 3),
    )
    for layer in layers(module).values():
        nn.init.uniform_(layer.weight, 0.5, 2)
        nn.init.normal_(layer.bias)
    stop_tracking(module)
    return module


def site_blocks() -> list[list[Tensor]]:
    """For each site its blocks of pictures; sites differ in mean and spread, or pooling would be too easy."""
    generator = torch.Generator().manual_seed(1)
    sites = [
        torch.randn(count, 2, 9, 9, generator=generator) * (1 + number) + 10 * number
        for number, count in enumerate(SITES)
    ]
    return [[site[start : start + BLOCK] for start in range(0, len(site), BLOCK)] for site in sites]


def seen_by_layers(module: nn.Module, blocks: list[Tensor]) -> dict[str, np.ndarray]:
    """Everything that meets each BatchNorm layer over these blocks, [values, channels], in float64."""
    seen: dict[str, list[np.ndarray]] = {name: [] for name in layers(module)}
    hooks = [
        layer.register_forward_pre_hook(lambda _, inputs, name=name: seen[name].append(inputs[0].double().numpy()))
        for name, layer in layers(module).items()
    ]
    module.train()
    with torch.no_grad():
        for block in blocks:
            module(block)
    for hook in hooks:
        hook.remove()
    rows = {
        name: [np.moveaxis(each, 1, -1).reshape(-1, each.shape[1]) for each in parts] for name, parts in seen.items()
    }
    return {name: np.concatenate(parts) for name, parts in rows.items()}


def assert_statistics_of(stats: BatchNormStats, values: dict[str, np.ndarray], rtol: float = 1e-5) -> None:
    assert list(stats) == list(values)
    for name, rows in values.items():
        assert stats[name].number == len(rows)
        np.testing.assert_allclose(stats[name].mean.numpy(), rows.mean(axis=0), rtol=rtol, atol=1e-5)
        np.testing.assert_allclose(stats[name].var.numpy(), rows.var(axis=0, ddof=1), rtol=rtol)


def test_pooled_statistics_are_those_of_the_union() -> None:
    module, sites = deep_network(), site_blocks()
    union = seen_by_layers(module, [block for site in sites for block in site])

    pooled = pool(collect(module, site) for site in sites)

    assert_statistics_of(pooled, union)


def test_one_layer_sees_the_convolution_of_all_pictures() -> None:
    # Without a BatchNorm before it, what it sees does not depend on the blocks: one pass will do.
    torch.manual_seed(3)
    module = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4))
    stop_tracking(module)
    sites = site_blocks()
    with torch.no_grad():
        activations = module[0](torch.cat([block for site in sites for block in site])).double().numpy()

    stats = pool(collect(module, site) for site in sites)["1"]

    assert stats.number == 42 * 7 * 7
    np.testing.assert_allclose(stats.mean.numpy(), activations.mean(axis=(0, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(stats.var.numpy(), activations.var(axis=(0, 2, 3), ddof=1), rtol=1e-5)


def test_pooling_sites_equals_one_pass_over_the_same_blocks() -> None:
    module, sites = deep_network(), site_blocks()

    by_site = pool(collect(module, site) for site in sites)
    at_once = collect(module, [block for site in sites for block in site])

    assert by_site.keys() == at_once.keys() == {"1", "4", "8"}
    for name in by_site:
        assert by_site[name].number == at_once[name].number
        torch.testing.assert_close(by_site[name].mean, at_once[name].mean, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(by_site[name].var, at_once[name].var, rtol=1e-12, atol=1e-12)


def test_the_appendix_formula_by_hand() -> None:
    # {1, 3} has mean 2, variance 2; {4, 5, 9} has mean 6, variance 7. Their union has mean 22/5 and variance 8.8.
    parts = [
        {"bn": Moments(2, torch.tensor([2.0]).double(), torch.tensor([2.0]).double())},
        {"bn": Moments(3, torch.tensor([6.0]).double(), torch.tensor([7.0]).double())},
    ]

    pooled = pool(parts)["bn"]

    assert pooled.number == 5
    assert pooled.mean.item() == pytest.approx(4.4, rel=1e-15)
    assert pooled.var.item() == pytest.approx(np.var([1, 3, 4, 5, 9], ddof=1), rel=1e-15) == pytest.approx(8.8)


def test_pooling_leaves_out_sites_that_gave_nothing() -> None:
    part = {"bn": Moments(4, torch.tensor([1.5]).double(), torch.tensor([0.25]).double())}

    assert pool([{}, part, {}]) == part
    assert pool([]) == {}
    assert pool([{}, {}]) == {}


def test_the_variance_is_unbiased() -> None:
    module = nn.Sequential(nn.BatchNorm1d(1))
    stop_tracking(module)

    stats = collect(module, [torch.tensor([[1.0], [2.0], [6.0]])])["0"]

    assert stats.number == 3
    assert stats.mean.item() == pytest.approx(3.0, rel=1e-6)
    assert stats.var.item() == pytest.approx((4 + 1 + 9) / 2, rel=1e-6)
    assert stats.mean.dtype == stats.var.dtype == torch.float64


def test_statistics_depend_on_the_blocks_alone() -> None:
    module, sites = deep_network(), site_blocks()
    expected = collect(module, sites[0])

    for poison in (1e30, float("inf"), float("nan")):  # what a model that diverged leaves behind
        for layer in layers(module).values():
            layer.running_mean.fill_(poison)
            layer.running_var.fill_(poison)
        again = collect(module, sites[0])

        for name in expected:
            assert torch.equal(again[name].mean, expected[name].mean), poison
            assert torch.equal(again[name].var, expected[name].var), poison


@pytest.mark.parametrize("tracking", [True, False])
def test_training_uses_batch_statistics_and_tracks_nothing(tracking: bool) -> None:
    layer = nn.BatchNorm2d(3, track_running_stats=tracking)
    stop_tracking(layer)
    images = torch.randn(6, 3, 4, 4, generator=torch.Generator().manual_seed(0)) * 3 + 2
    buffers = {name: buffer.clone() for name, buffer in layer.named_buffers()}
    values = images.double().numpy()
    mean, var = values.mean(axis=(0, 2, 3), keepdims=True), values.var(axis=(0, 2, 3), keepdims=True)

    layer.train()
    output = layer(images).detach()

    np.testing.assert_allclose(output.numpy(), (values - mean) / np.sqrt(var + 1e-5), rtol=1e-4, atol=1e-5)
    assert buffers.keys() >= {"running_mean", "running_var"}
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in layer.named_buffers())


@pytest.mark.parametrize("tracking", [True, False])
def test_evaluation_uses_the_statistics_loaded(tracking: bool) -> None:
    module = nn.Sequential(nn.BatchNorm2d(2, track_running_stats=tracking))
    stop_tracking(module)
    images = torch.randn(3, 2, 4, 4, generator=torch.Generator().manual_seed(0))
    mean, var = np.array([0.5, -1.0]), np.array([4.0, 0.25])

    load(module, {"0": Moments(9, torch.from_numpy(mean), torch.from_numpy(var))})
    module.eval()
    output, alone = module(images).detach(), module(images[:1]).detach()

    expected = (images.double().numpy() - mean[:, None, None]) / np.sqrt(var[:, None, None] + 1e-5)
    np.testing.assert_allclose(output.numpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(alone.numpy(), expected[:1], rtol=1e-4, atol=1e-5)  # one picture is no problem here


def test_a_layer_without_buffers_can_be_collected_too() -> None:
    sites = site_blocks()
    module = nn.Sequential(nn.BatchNorm2d(2, track_running_stats=False, affine=False))
    stop_tracking(module)

    stats = collect(module, sites[1])

    assert_statistics_of(stats, seen_by_layers(module, sites[1]))


@pytest.mark.parametrize("momentum", [0.1, 0.3, None])
def test_collecting_restores_the_layers_and_the_weights(momentum: float | None) -> None:
    module = deep_network()
    for layer in layers(module).values():
        layer.momentum = momentum
    weights = {name: parameter.clone() for name, parameter in module.named_parameters()}

    collect(module, site_blocks()[0])

    assert [(layer.momentum, layer.track_running_stats) for layer in layers(module).values()] == [(momentum, False)] * 3
    assert not any(layer._forward_pre_hooks for layer in layers(module).values())
    assert all(torch.equal(parameter, weights[name]) for name, parameter in module.named_parameters())
    assert all(parameter.grad is None for parameter in module.parameters())


def test_collecting_restores_the_layers_even_if_a_block_fails() -> None:
    module = deep_network()

    with pytest.raises(RuntimeError):
        collect(module, [torch.zeros(2, 5, 9, 9)])

    assert [(layer.momentum, layer.track_running_stats) for layer in layers(module).values()] == [(0.1, False)] * 3
    assert not any(layer._forward_pre_hooks for layer in layers(module).values())


def test_a_model_without_batchnorm_has_no_statistics() -> None:
    module = nn.Sequential(nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4))
    stop_tracking(module)

    stats = collect(module, site_blocks()[0])
    load(module, stats)

    assert stats == {}
    assert batchnorm.layers(module) == {}


def test_dropout_does_not_make_the_statistics_random() -> None:
    module = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm2d(2))
    stop_tracking(module)
    module.train()
    blocks = site_blocks()[0]
    values = torch.cat(blocks).double().numpy()

    stats = collect(module, blocks)["1"]

    np.testing.assert_allclose(stats.mean.numpy(), values.mean(axis=(0, 2, 3)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(stats.var.numpy(), values.var(axis=(0, 2, 3), ddof=1), rtol=1e-5)


def test_layers_are_named_as_in_the_model() -> None:
    assert list(layers(deep_network())) == ["1", "4", "8"]


def test_how_many_values_a_picture_brings_follows_from_its_size() -> None:
    # 9 × 9 pixels are 7 × 7 after a convolution of 3, 3 × 3 after another with stride 2, and one number after the last.
    assert values_per_picture(deep_network(), channels=2, size=9) == {"1": 49, "4": 9, "8": 1}

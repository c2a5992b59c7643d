"""The fast network: its size, its stem, its first weights, and its sub-networks."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from semifl.learning import batchnorm
from semifl.learning.network import Network, parameters_of
from semifl.learning.subnetwork import narrow_shapes
from semifl.learning.weights import shapes
from semifl.models.fast_cnn import FastCnn

SMALL = FastCnn((4, 6, 8))


def rows(size: int, seed: int = 0) -> tuple[tuple[float, ...], ...]:
    return tuple(map(tuple, np.random.default_rng(seed).normal(size=(size, size)).astype(np.float32).tolist()))


def test_the_parameters_are_those_of_six_convolutions() -> None:
    # 24 outputs of the stem, which is not among them; then two 3×3 convolutions and two norms in each group.
    expected, inputs = 0, 24
    for width in (64, 256, 256):
        expected += 9 * inputs * width + 9 * width * width + 4 * width
        inputs = width

    assert parameters_of(partial(FastCnn().build, 3, 32, 10)) == expected + 256 * 10 + 10


@pytest.mark.parametrize(("size", "side"), [(8, 1), (28, 3), (32, 3), (64, 7)])
def test_pictures_are_halved_while_they_can_be(size: int, side: int) -> None:
    module = SMALL.build(1, size, 5)
    seen: list[Tensor] = []
    pooling = next(layer for layer in module.modules() if isinstance(layer, nn.AdaptiveMaxPool2d))
    pooling.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))

    assert module(torch.randn(2, 1, size, size)).shape == (2, 5)
    assert seen[0].shape == (2, 8, side, side)


@pytest.mark.parametrize("channels", [1, 3])
def test_the_stem_is_the_filters_and_their_negatives(channels: int) -> None:
    whitening, x = rows(4 * channels), torch.randn(2, channels, 5, 5)
    stem = SMALL.build(channels, 5, 3, whitening=whitening)[0]

    out = stem(x)

    patch = x[1, :, 2:4, 3:5].reshape(-1).double().numpy()
    expected = np.concatenate([np.array(whitening) @ patch, -np.array(whitening) @ patch])
    gelu = F.gelu(torch.from_numpy(expected))
    torch.testing.assert_close(out[1, :, 2, 3].double(), gelu, rtol=1e-5, atol=1e-5)


def test_the_stem_is_never_trained_nor_sent() -> None:
    module = SMALL.build(3, 8, 3, whitening=rows(12))
    network = Network(module)
    before = module[0].whitening.clone()
    optimiser = torch.optim.SGD([network.vector], lr=0.1, weight_decay=0.1)

    for _ in range(3):
        F.cross_entropy(network(torch.randn(4, 3, 8, 8)), torch.tensor([0, 1, 2, 0])).backward()
        optimiser.step()

    assert not module[0].whitening.requires_grad
    assert torch.equal(module[0].whitening, before)
    assert "0.whitening" not in network.weights()
    assert torch.equal(module.state_dict()["0.whitening"].reshape(12, 12), torch.tensor(rows(12)))


def test_statistics_are_pooled_like_everywhere() -> None:
    network = Network(SMALL.build(3, 8, 3, whitening=rows(12)))

    stats = batchnorm.collect(network.module, torch.randn(2, 5, 3, 8, 8))

    assert len(stats) == 6
    assert all(moments.var.isfinite().all() for moments in stats.values())


def test_convolutions_pass_their_inputs_on_at_first() -> None:
    torch.manual_seed(0)
    layer = next(layer for layer in FastCnn((30, 40, 40)).build(3, 32, 10).modules() if isinstance(layer, nn.Conv2d))
    x = torch.randn(1, 24, 6, 6)

    out = layer(x)

    torch.testing.assert_close(out[:, :24], x)  # the first 24 of 30 outputs
    assert not torch.allclose(out[:, 24:], x[:, :6])


@pytest.mark.parametrize("share", [1.0, 0.5, 0.25, 0.125, 0.01])
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_a_narrow_one_has_the_shapes_that_are_cut_for_it(share: float, norm: Any) -> None:
    spec = FastCnn((16, 64, 40), norm)
    whole, narrow = (dict(spec.build(1, 32, 7, share=each).named_parameters()) for each in (1.0, share))

    assert narrow_shapes(whole, share) == shapes(narrow)
    assert list(narrow) == list(whole)


def test_a_narrow_one_has_the_whole_stem_and_learns() -> None:
    module = SMALL.build(3, 8, 5, share=0.25, whitening=rows(12)).train()

    F.cross_entropy(module(torch.randn(4, 3, 8, 8)), torch.arange(4)).backward()

    assert module[0].whitening.shape == (12, 3, 2, 2)
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_widths_that_do_not_exist() -> None:
    with pytest.raises(ValueError, match=r"^widths must be at least 1, not \[4, 0, 4\]$"):
        FastCnn((4, 0, 4))


def test_a_mirrored_network_infers_from_both_and_trains_from_one() -> None:
    plain, mirrored = (replace(SMALL, mirrored=each).build(3, 8, 3, whitening=rows(12)) for each in (False, True))
    mirrored.load_state_dict(plain.state_dict())  # so they have the same weights by the same names
    x = torch.randn(4, 3, 8, 8)

    assert torch.equal(mirrored.train()(x), plain.train()(x))
    expected = (plain.eval()(x) + plain(torch.from_numpy(x.numpy()[..., ::-1].copy()))) / 2
    torch.testing.assert_close(mirrored.eval()(x), expected)


def test_statistics_of_a_mirrored_network_are_those_of_the_pictures_alone() -> None:
    plain, mirrored = (replace(SMALL, mirrored=each).build(3, 8, 3, whitening=rows(12)) for each in (False, True))
    mirrored.load_state_dict(plain.state_dict())
    blocks = torch.randn(2, 5, 3, 8, 8)

    expected, stats = (batchnorm.collect(Network(module).module, blocks) for module in (plain, mirrored))

    assert stats.keys() == expected.keys()
    for name, (number, mean, var) in expected.items():
        assert stats[name].number == number
        assert torch.equal(stats[name].mean, mean)
        assert torch.equal(stats[name].var, var)

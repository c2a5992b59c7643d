"""Architectures: sizes, shapes, first weights, and the Wide ResNet against a functional re-computation."""

import math
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from semifl.learning import batchnorm
from semifl.learning.layers import norm_layer
from semifl.learning.subnetwork import cut, narrow_shapes
from semifl.learning.weights import shapes
from semifl.models.cnn import Cnn
from semifl.models.resnet import ResNet
from semifl.models.wide_resnet import WideResNet

SMALL = [Cnn(width=4), Cnn(width=4, norm="group"), ResNet(9), ResNet(9, "group"), WideResNet(10, 1)]
ALL = [Cnn(), Cnn(width=4, norm="group"), ResNet(9), WideResNet(10, 1, "group"), WideResNet(28, 2)]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def build(spec: Any, channels: int = 3, size: int = 32, classes: int = 10) -> nn.Module:
    torch.manual_seed(0)
    return spec.build(channels=channels, size=size, classes=classes)


@lru_cache
def built_once(spec: Any, channels: int, size: int) -> nn.Module:
    return build(spec, channels, size, classes=5)


def parameter_count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def wide_resnet_count(depth: int, width: int, channels: int, classes: int) -> int:
    """By the paper's table: three groups of (depth − 4)/6 blocks, two 3×3 convolutions and two norms in each."""
    total, inputs = channels * 16 * 9, 16
    for outputs in (16 * width, 32 * width, 64 * width):
        for _ in range((depth - 4) // 6):
            total += 2 * inputs + 9 * inputs * outputs + 2 * outputs + 9 * outputs * outputs
            if inputs != outputs:
                total += inputs * outputs  # the shortcut's 1×1 convolution
            inputs = outputs
    return total + 2 * inputs + inputs * classes + classes


def multiply_adds(module: nn.Module, images: Tensor) -> int:
    """Counted where they happen, in every convolution and linear layer."""
    total = 0

    def count(layer: nn.Module, _: Any, output: Tensor) -> None:
        nonlocal total
        weight = layer.weight
        assert isinstance(weight, Tensor)
        total += output.numel() * weight[0].numel()

    for layer in module.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            layer.register_forward_hook(count)
    with torch.no_grad():
        module.eval()(images)
    return total


# sizes


@pytest.mark.parametrize(("depth", "width", "classes", "count"), [(28, 2, 10, 1_467_610), (28, 8, 100, 23_401_012)])
def test_the_parameters_of_the_papers_wide_resnets(depth: int, width: int, classes: int, count: int) -> None:
    with torch.device("meta"):
        module = WideResNet(depth, width).build(channels=3, size=32, classes=classes)

    assert parameter_count(module) == count == wide_resnet_count(depth, width, 3, classes)


@pytest.mark.parametrize(("depth", "width", "channels", "classes"), [(10, 1, 1, 2), (16, 3, 3, 7), (22, 2, 1, 10)])
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_the_parameters_of_other_wide_resnets(depth: int, width: int, channels: int, classes: int, norm: Any) -> None:
    module = WideResNet(depth, width, norm).build(channels=channels, size=32, classes=classes)

    assert parameter_count(module) == wide_resnet_count(depth, width, channels, classes)


def test_the_parameters_of_resnet() -> None:
    # He et al. with a 3×3 stem: stem, then per block two 3×3 convolutions and norms, 1×1 shortcuts with norms in
    # stages 2 to 4, and the linear layer.
    def expected(blocks: int) -> int:
        total, inputs = 3 * 64 * 9 + 2 * 64, 64
        for outputs in (64, 128, 256, 512):
            for _ in range(blocks):
                total += 9 * inputs * outputs + 9 * outputs * outputs + 4 * outputs
                total += inputs * outputs + 2 * outputs if inputs != outputs else 0
                inputs = outputs
        return total + 512 * 10 + 10

    with torch.device("meta"):
        counts = [parameter_count(build(ResNet(depth))) for depth in (9, 18)]

    assert counts == [expected(1), expected(2)]


def test_the_parameters_of_the_cnn() -> None:
    widths = [3, 32, 64, 128, 256]
    convolutions = sum(9 * a * b + 2 * b for a, b in pairwise(widths))

    assert parameter_count(build(Cnn())) == convolutions + 256 * 10 + 10


def test_the_arithmetic_of_wide_resnet_28_2() -> None:
    count = multiply_adds(build(WideResNet(28, 2)), torch.zeros(1, 3, 32, 32))

    # By hand: the stem and each 3×3 convolution at 32², 16² and 8² pixels, 1×1 shortcuts, and the linear layer.
    stem = 1024 * 27 * 16
    first = 1024 * 9 * (16 * 32 + 7 * 32 * 32) + 1024 * 16 * 32
    second = 256 * 9 * (32 * 64 + 7 * 64 * 64) + 256 * 32 * 64
    third = 64 * 9 * (64 * 128 + 7 * 128 * 128) + 64 * 64 * 128
    assert count == stem + first + second + third + 1280
    assert count == pytest.approx(214e6, rel=0.01)


# shapes


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("size", [8, 28, 32, 64])
@pytest.mark.parametrize("spec", SMALL, ids=str)
def test_logits_for_every_picture_size(spec: Any, size: int, channels: int) -> None:
    module = built_once(spec, channels, size if isinstance(spec, Cnn) else 32)  # others are the same for every size
    images = torch.randn(2, channels, size, size)

    with torch.no_grad():
        training, inference = module.train()(images), module.eval()(images)

    assert training.shape == inference.shape == (2, 5)
    assert training.isfinite().all()
    assert inference.isfinite().all()


@pytest.mark.parametrize("spec", [WideResNet(16, 2), ResNet(9), Cnn()], ids=str)
def test_every_parameter_gets_a_gradient(spec: Any) -> None:
    module = build(spec, size=8)

    F.cross_entropy(module(torch.randn(4, 3, 8, 8)), torch.arange(4)).backward()

    assert all(parameter.grad is not None and parameter.grad.any() for parameter in module.parameters())


@pytest.mark.parametrize("spec", [WideResNet(10, 1), ResNet(9), Cnn(width=4)], ids=str)
def test_the_side_of_the_last_features(spec: Any) -> None:
    sides = []
    module = build(spec)
    pooling = next(layer for layer in module.modules() if isinstance(layer, nn.AdaptiveAvgPool2d))
    pooling.register_forward_pre_hook(lambda _, inputs: sides.append(inputs[0].shape[-1]))

    module(torch.randn(2, 3, 32, 32))

    assert sides == [{WideResNet: 8, ResNet: 4, Cnn: 2}[type(spec)]]


# first weights


@pytest.mark.parametrize("spec", ALL, ids=str)
def test_first_weights(spec: Any) -> None:
    module = build(spec)

    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            assert layer.bias is None
            # Kaiming normal by fan-out: σ = √(2 / (outputs · k²)); the estimate of σ errs by σ/√(2n).
            sigma = math.sqrt(2 / (layer.out_channels * layer.kernel_size[0] ** 2))
            n = layer.weight.numel()
            assert float(layer.weight.detach().std()) == pytest.approx(sigma, rel=6 / math.sqrt(2 * n))
            assert abs(float(layer.weight.detach().mean())) < 6 * sigma / math.sqrt(n)
            assert float(layer.weight.detach().abs().max()) > sigma * 1.8  # normal, not uniform (which ends at √3 σ)
        elif isinstance(layer, nn.Linear):
            bound = 1 / math.sqrt(layer.in_features)  # as PyTorch draws them: uniform
            assert layer.bias is not None
            assert not layer.bias.any()
            assert 0.9 * bound < float(layer.weight.detach().abs().max()) <= bound
        elif isinstance(layer, (nn.BatchNorm2d, nn.GroupNorm)):
            assert layer.weight.unique().tolist() == [1.0]
            assert layer.bias.unique().tolist() == [0.0]


# norms


@pytest.mark.parametrize("spec", [Cnn(norm="group"), ResNet(9, "group"), WideResNet(28, 2, "group")], ids=str)
def test_group_norm_leaves_no_batchnorm(spec: Any) -> None:
    with torch.device("meta"):
        module, twin = build(spec), build(type(spec)(**{**vars(spec), "norm": "batch"}))

    groups = [layer for layer in module.modules() if isinstance(layer, nn.GroupNorm)]
    assert batchnorm.layers(module) == {}
    assert len(groups) == len(batchnorm.layers(twin)) > 0


def test_with_group_norm_pictures_do_not_see_each_other() -> None:
    module = build(WideResNet(10, 1, "group"), size=8).train()
    images = torch.randn(4, 3, 8, 8)

    with torch.no_grad():
        together, alone = module(images), torch.cat([module(image[None]) for image in images])

    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("channels", "groups"), [(16, 8), (32, 8), (12, 6), (7, 7), (10, 5), (11, 1), (1, 1), (4, 4)])
def test_group_norm_has_the_most_groups_up_to_eight_that_divide(channels: int, groups: int) -> None:
    layer = norm_layer("group", channels)

    assert isinstance(layer, nn.GroupNorm)
    assert layer.num_groups == groups


# sub-networks

SHARES = (1.0, 0.5, 0.25, 0.125, 0.0625, 0.01)
CUT = [Cnn(), Cnn(width=5, norm="group"), ResNet(9), ResNet(18, "group"), WideResNet(10, 1), WideResNet(16, 2)]


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("spec", CUT, ids=str)
def test_a_narrow_model_has_the_shapes_that_are_cut_for_it(spec: Any, share: float) -> None:
    with torch.device("meta"):
        whole = dict(spec.build(channels=1, size=32, classes=7).named_parameters())
        narrow = dict(spec.build(channels=1, size=32, classes=7, share=share).named_parameters())

    assert narrow_shapes(whole, share) == shapes(narrow)
    assert list(narrow) == list(whole)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("spec", SMALL, ids=str)
def test_a_narrow_model_learns(spec: Any, share: float) -> None:
    torch.manual_seed(0)
    module = spec.build(channels=3, size=8, classes=5, share=share).train()

    logits = module(torch.randn(4, 3, 8, 8))
    F.cross_entropy(logits, torch.arange(4)).backward()

    assert logits.shape == (4, 5)
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_by_hand_the_widths_of_a_quarter() -> None:
    with torch.device("meta"):
        module = WideResNet(10, 2).build(channels=3, size=32, classes=10, share=0.25)

    convolutions = [layer for layer in module.modules() if isinstance(layer, nn.Conv2d)]
    assert [(c.in_channels, c.out_channels) for c in convolutions] == [
        (3, 4),
        *[(4, 8), (8, 8), (4, 8)],  # a block: two convolutions and its shortcut
        *[(8, 16), (16, 16), (8, 16)],
        *[(16, 32), (32, 32), (16, 32)],
    ]


@pytest.mark.parametrize("spec", SMALL, ids=str)
def test_the_whole_share_is_the_model_itself(spec: Any) -> None:
    torch.manual_seed(0)
    explicit = spec.build(channels=3, size=8, classes=5, share=1.0)
    module, images = build(spec, size=8, classes=5), torch.randn(4, 3, 8, 8)

    assert all(torch.equal(a, b) for a, b in zip(explicit.parameters(), module.parameters(), strict=True))
    assert torch.equal(explicit.train()(images), module.train()(images))


def test_the_scaler_divides_before_every_norm_in_training_alone() -> None:
    # Seen at the norms' inputs: their outputs do not show it, a norm undoes any scale up to its ε.
    module = Cnn(width=4).build(channels=3, size=8, classes=5, share=0.5)
    before, after = [], []
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            layer.register_forward_hook(lambda _, inputs, output: before.append(output.detach()))
        if isinstance(layer, nn.BatchNorm2d):
            layer.register_forward_pre_hook(lambda _, inputs: after.append(inputs[0].detach()))

    for training, factor in ((True, 2.0), (False, 1.0)):
        before.clear()
        after.clear()
        module.train(training)(torch.randn(4, 3, 8, 8))
        assert len(before) == len(after) == 4
        assert all(torch.equal(a, factor * b) for a, b in zip(after, before, strict=True))


def test_a_cut_network_computes_with_the_first_channels() -> None:
    """The narrow network by its definition: convolutions of the leading entries, batch statistics, no ε to speak of."""
    whole = build(Cnn(width=4), size=8, classes=3)
    weights = {name: p.detach() for name, p in whole.named_parameters()}
    narrow = Cnn(width=4).build(channels=3, size=8, classes=3, share=0.25)
    narrow.load_state_dict(cut(weights, narrow_shapes(weights, 0.25)), strict=False)
    images = torch.randn(6, 3, 8, 8)

    x, inputs = images, 3
    for number, (layer, outputs) in enumerate(zip(("0", "4", "8", "11"), (1, 2, 4, 8), strict=True)):
        x = F.conv2d(x, weights[f"{layer}.weight"][:outputs, :inputs], padding=1) * 4
        x = (x - x.mean(dim=(0, 2, 3), keepdim=True)) / (
            x.var(dim=(0, 2, 3), unbiased=False, keepdim=True) + 1e-5
        ).sqrt()
        x = x.clamp(min=0)
        x = F.max_pool2d(x, 2) if number < 2 else x
        inputs = outputs
    expected = x.mean(dim=(2, 3)) @ weights["16.weight"][:, :8].T + weights["16.bias"]

    with torch.no_grad():
        torch.testing.assert_close(narrow.train()(images), expected, rtol=1e-4, atol=1e-5)


# settings


@pytest.mark.parametrize("depth", [4, 9, 11, 27, 0, -2])
def test_depths_that_do_not_exist(depth: int) -> None:
    with pytest.raises(ValueError, match=rf"^depth must be 10, 16, 22, 28, … \(6n \+ 4\), not {depth}$"):
        WideResNet(depth=depth)


@pytest.mark.parametrize("spec", [WideResNet, Cnn])
def test_widths_that_do_not_exist(spec: Any) -> None:
    with pytest.raises(ValueError, match=r"^width must be at least 1, not 0$"):
        spec(width=0)


# the Wide ResNet again, from the paper: x + conv(relu(bn(conv(relu(bn(x))))))


@pytest.mark.parametrize("training", [True, False])
def test_wide_resnet_is_what_the_paper_draws(training: bool) -> None:
    module = build(WideResNet(16, 2), size=16, classes=4).double()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for layer in batchnorm.layers(module).values():  # nothing may be 1 or 0, or a mistake would not show
            for tensor in (layer.weight, layer.running_var):
                tensor.copy_(torch.rand(tensor.shape, generator=generator, dtype=torch.float64) + 0.5)
            for tensor in (layer.bias, layer.running_mean):
                tensor.copy_(torch.randn(tensor.shape, generator=generator, dtype=torch.float64))
    values = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    images = torch.randn(3, 3, 16, 16, generator=generator, dtype=torch.float64)

    def norm_relu(x: Tensor, name: str) -> Tensor:
        mean, var = values[f"{name}.running_mean"], values[f"{name}.running_var"]
        if training:
            mean, var = x.mean(dim=(0, 2, 3)), x.var(dim=(0, 2, 3), unbiased=False)
        x = (x - mean[:, None, None]) / (var[:, None, None] + 1e-5).sqrt()
        return (x * values[f"{name}.weight"][:, None, None] + values[f"{name}.bias"][:, None, None]).clamp(min=0)

    x = F.conv2d(images, values["0.weight"], padding=1)
    for number in range(1, 7):  # three groups of two blocks
        name, first = str(number), number % 2 == 1
        stride = 2 if first and number > 1 else 1
        activated = norm_relu(x, f"{name}.norm1")
        inner = norm_relu(
            F.conv2d(activated, values[f"{name}.conv1.weight"], stride=stride, padding=1), f"{name}.norm2"
        )
        out = F.conv2d(inner, values[f"{name}.conv2.weight"], padding=1)
        x = out + (F.conv2d(activated, values[f"{name}.shortcut.weight"], stride=stride) if first else x)
    features = norm_relu(x, "7").mean(dim=(2, 3))
    expected = features @ values["11.weight"].T + values["11.bias"]

    with torch.no_grad():
        logits = module.train(training)(images)

    torch.testing.assert_close(logits, expected, rtol=1e-9, atol=1e-9)

"""A network's trainable parameters and gradients are views of one vector each."""

import pytest
import torch
from torch import Tensor, nn

from semifl.errors import UserError
from semifl.learning.batchnorm import Moments
from semifl.learning.network import Network
from semifl.learning.weights import Snapshot


class Small(nn.Module):
    """Something of everything: convolution, BatchNorm, a frozen layer, a buffer of its own, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.frozen = nn.Linear(4, 4)
        self.frozen.requires_grad_(False)
        self.register_buffer("scale", torch.tensor(2.0))
        self.head = nn.Linear(4, 2)

    def forward(self, images: Tensor) -> Tensor:
        pooled = self.norm(self.conv(images)).relu().mean(dim=(2, 3))
        return self.head(self.scale * self.frozen(pooled))


SHAPES = {
    "conv.weight": (4, 3, 3, 3),
    "conv.bias": (4,),
    "norm.weight": (4,),
    "norm.bias": (4,),
    "head.weight": (2, 4),
    "head.bias": (2,),
}
SIZE = 4 * 3 * 3 * 3 + 4 + 4 + 4 + 8 + 2


@pytest.fixture
def module() -> Small:
    torch.manual_seed(0)
    return Small()


def channels_last(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers of a tensor, those of a convolution in the order outputs, rows, columns, inputs."""
    return (tensor.permute(0, 2, 3, 1) if tensor.dim() == 4 else tensor).flatten()


def test_the_vector_holds_the_trainable_parameters_in_order(module: Small) -> None:
    before = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}

    network = Network(module)

    assert network.vector.shape == (SIZE,)
    expected = torch.cat([channels_last(before[name]) for name in SHAPES])
    assert torch.equal(network.vector.detach(), expected)
    assert all(torch.equal(parameter, before[name]) for name, parameter in module.named_parameters())


def test_parameters_and_gradients_are_views_of_it(module: Small) -> None:
    network = Network(module)
    parameters = dict(module.named_parameters())

    with torch.no_grad():
        network.vector.fill_(3.0)
        network.vector.grad.fill_(5.0)

    for name in SHAPES:
        assert parameters[name].unique().tolist() == [3.0], name
        assert parameters[name].grad.unique().tolist() == [5.0], name
    assert parameters["frozen.weight"].unique().numel() > 1
    assert parameters["frozen.weight"].grad is None


def test_backward_fills_the_vectors_gradient(module: Small) -> None:
    images = torch.randn(5, 3, 6, 6, generator=torch.Generator().manual_seed(1))
    torch.manual_seed(0)
    twin = Small()
    twin(images).square().sum().backward()
    expected = torch.cat([channels_last(p.grad) for name, p in twin.named_parameters() if name in SHAPES])

    network = Network(module)
    for _ in range(2):  # the second time must not add to the first
        network.vector.grad.zero_()
        network(images).square().sum().backward()

    torch.testing.assert_close(network.vector.grad, expected, rtol=1e-4, atol=1e-5)


def test_weights_are_a_copy_by_name(module: Small) -> None:
    network = Network(module)

    weights = network.weights()
    before = weights["head.bias"].clone()
    with torch.no_grad():
        network.vector.fill_(9.0)

    assert {name: tuple(tensor.shape) for name, tensor in weights.items()} == SHAPES
    assert torch.equal(weights["head.bias"], before)
    assert not any(tensor.requires_grad for tensor in weights.values())


def test_loading_and_reading_weights_is_a_round_trip(module: Small) -> None:
    network = Network(module)
    generator = torch.Generator().manual_seed(2)
    weights = {name: torch.randn(shape, generator=generator) for name, shape in reversed(SHAPES.items())}
    kept = {name: tensor.clone() for name, tensor in weights.items()}

    network.load(weights)
    weights["head.bias"].zero_()  # what was loaded is the network's own

    assert all(torch.equal(tensor, kept[name]) for name, tensor in network.weights().items())
    assert torch.equal(module.conv.weight, kept["conv.weight"])


def test_loading_lacks_no_weight(module: Small) -> None:
    network = Network(module)
    weights = network.weights()
    del weights["norm.bias"]

    with pytest.raises(ValueError, match="not of this model"):
        network.load(weights)


def test_loading_takes_no_other_shape(module: Small) -> None:
    network = Network(module)
    weights = network.weights()
    weights["norm.bias"] = torch.zeros(1)  # torch would broadcast it without a word

    with pytest.raises(ValueError, match="not of this model"):
        network.load(weights)


def test_frozen_parameters_and_buffers_stay_and_never_travel(module: Small) -> None:
    frozen = module.frozen.weight.detach().clone()
    network = Network(module)
    other = {name: torch.zeros(shape) for name, shape in SHAPES.items()}

    network.load(other)
    optimizer = torch.optim.SGD([network.vector], lr=1.0, weight_decay=0.5)
    optimizer.step()

    assert set(network.weights()) == set(SHAPES)
    assert torch.equal(module.frozen.weight, frozen)
    assert module.scale.item() == 2.0


def test_a_snapshot_is_weights_and_statistics_ready_to_infer(module: Small) -> None:
    network = Network(module)
    module.train()
    generator = torch.Generator().manual_seed(3)
    weights = {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    mean, var = torch.randn(4, generator=generator).double(), torch.rand(4, generator=generator).double() + 0.5
    images = torch.randn(2, 3, 6, 6, generator=generator)

    network.load_snapshot(Snapshot(weights, {"norm": Moments(50, mean, var)}))
    with torch.no_grad():
        logits = network(images)

    # The same by hand, in float64.
    w = {name: tensor.double() for name, tensor in weights.items()}
    x = nn.functional.conv2d(images.double(), w["conv.weight"], w["conv.bias"])
    x = (x - mean[:, None, None]) / (var[:, None, None] + 1e-5).sqrt()
    x = (x * w["norm.weight"][:, None, None] + w["norm.bias"][:, None, None]).clamp(min=0).mean(dim=(2, 3))
    x = 2.0 * (x @ module.frozen.weight.double().T + module.frozen.bias.double())
    expected = x @ w["head.weight"].T + w["head.bias"]
    assert not module.training
    torch.testing.assert_close(logits.double(), expected.detach(), rtol=1e-4, atol=1e-5)


def test_batchnorm_of_a_network_tracks_nothing(module: Small) -> None:
    network = Network(module)
    module.train()

    network(torch.randn(4, 3, 6, 6) + 7)

    assert module.norm.running_mean.tolist() == [0.0] * 4
    assert module.norm.running_var.tolist() == [1.0] * 4


def test_tied_parameters_stay_tied() -> None:
    module = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    module[1].weight = module[0].weight

    network = Network(module)
    with torch.no_grad():
        network.vector.fill_(2.0)

    assert network.vector.shape == (9,)
    assert torch.equal(module[1].weight, torch.full((3, 3), 2.0))


def test_features_are_what_the_last_linear_layer_sees(module: Small) -> None:
    network = Network(module)
    images = torch.randn(5, 3, 6, 6, generator=torch.Generator().manual_seed(4))

    logits, features = network.with_features(images)

    by_hand = features @ module.head.weight.T + module.head.bias
    torch.testing.assert_close(logits, by_hand)
    torch.testing.assert_close(logits, network(images))
    features.sum().backward()
    assert module.conv.weight.grad.abs().sum() > 0
    assert not module.head._forward_pre_hooks  # nothing stays behind


def test_features_need_a_linear_layer() -> None:
    network = Network(nn.Sequential(nn.Conv2d(1, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten()))
    with pytest.raises(UserError, match="no linear layer"):
        network.with_features(torch.zeros(2, 1, 4, 4))


def test_an_average_follows_the_weights(module: Small) -> None:
    network = Network(module)
    average = {name: torch.full(shape, 8.0) for name, shape in SHAPES.items()}
    with torch.no_grad():
        network.vector.fill_(4.0)

    network.average_into(average, 0.75)
    network.average_into(average, 0.5)

    # 0.75 · 8 + 0.25 · 4 = 7, then 0.5 · 7 + 0.5 · 4
    assert all(tensor.unique().tolist() == [5.5] for tensor in average.values())
    assert not any(tensor.requires_grad for tensor in average.values())

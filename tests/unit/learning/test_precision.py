"""Passes in bfloat16 against NumPy's own rounding; what is added up, kept and sent stays in single precision."""

import numpy as np
import pytest
import torch
from torch import nn

from semifl.learning.network import Network
from semifl.learning.precision import choose, has_fast_bf16

FINE = 1 + 2**-7  # the bfloat16 next to 1
LOST = 1 + 2**-9  # rounded to 1


def rounded(values: np.ndarray) -> np.ndarray:
    """To bfloat16, which is the first half of a float32, to nearest with ties to even."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32)


def linear(weight: list[list[float]], precision: str = "bf16") -> Network:
    layer = nn.Linear(len(weight[0]), len(weight), bias=False)
    layer.weight.data = torch.tensor(weight)
    return Network(layer, precision=precision)


def test_logits_are_products_of_rounded_numbers_and_come_out_as_fp32() -> None:
    generator = np.random.default_rng(3)
    x, W = generator.normal(size=(5, 8)).astype(np.float32), generator.normal(size=(4, 8)).astype(np.float32)
    network = linear(W.tolist())

    logits = network(torch.from_numpy(x))

    assert logits.dtype == torch.float32
    exact = rounded(x).astype(np.float64) @ rounded(W).astype(np.float64).T
    assert np.allclose(logits.detach().numpy(), exact, rtol=2**-8, atol=1e-6)  # the result itself is rounded too
    assert np.array_equal(rounded(logits.detach().numpy()), logits.detach().numpy())


def test_fp32_is_left_alone() -> None:
    network = linear([[LOST]], "fp32")
    assert network(torch.tensor([[1.0]])).item() == LOST


def test_weights_and_gradients_are_fp32_and_small_steps_are_not_lost() -> None:
    network = linear([[1.0]])
    assert network.vector.grad is not None

    network(torch.tensor([[FINE]])).sum().backward()

    assert network.vector.grad.dtype == torch.float32
    assert network.vector.grad.item() == FINE
    with torch.no_grad():
        network.vector += 2**-9
    assert network.weights()["weight"].item() == LOST  # half as fine a step is still there …
    assert network(torch.tensor([[1.0]])).item() == 1.0  # … though a pass rounds it away


def test_another_models_passes_and_the_features_are_rounded_and_widened_too() -> None:
    network = linear([[LOST]])

    said = network.forward_with({"weight": torch.tensor([[2 * LOST]])}, torch.tensor([[1.0]]))
    logits, features = network.with_features(torch.tensor([[FINE]]))

    assert (said.item(), said.dtype) == (2.0, torch.float32)
    assert (logits.item(), logits.dtype) == (FINE, torch.float32)
    assert (features.item(), features.dtype) == (FINE, torch.float32)


def test_batchnorm_statistics_add_up_in_fp32() -> None:
    """A sum in bfloat16 would never come past 256: the next number is 258."""
    module = nn.Sequential(nn.Conv2d(1, 1, 1, bias=False), nn.BatchNorm2d(1))
    module[0].weight.data.fill_(1.0)
    network = Network(module, precision="bf16")
    pictures = torch.ones(1000, 1, 2, 2)
    pictures[::2] = 3.0

    moments = network.statistics([pictures])["1"]

    assert (moments.number, moments.mean.item()) == (4000, 2.0)
    assert moments.mean.dtype == torch.float64
    assert moments.var.item() == pytest.approx(4000 / 3999, rel=1e-6)  # every value is 1 off


def test_a_batch_norm_in_training_keeps_to_fp32_parameters() -> None:
    network = Network(nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Flatten()), precision="bf16")
    network.module.train()
    output = network(torch.randn(8, 1, 4, 4, generator=torch.Generator().manual_seed(0)))
    output.square().sum().backward()
    assert output.dtype == network.vector.grad.dtype == torch.float32
    assert bool(torch.isfinite(network.vector.grad).all())


@pytest.mark.parametrize(
    ("capabilities", "fast"),
    [
        ({"amx_bf16": True, "avx512_bf16": True}, True),
        ({"amx_bf16": False, "avx512_bf16": True}, True),
        ({"avx2": True, "avx512_f": True, "avx512_bf16": False}, False),
        ({}, False),
    ],
)
def test_auto_is_bf16_only_where_a_cpu_is_fast_at_it(monkeypatch, capabilities: dict, fast: bool) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)
    precision, note = choose("auto", "cpu")
    assert precision == ("bf16" if fast else "fp32")
    assert ("stays at fp32" in note) is not fast
    assert choose("bf16", "cpu") == ("bf16", "")  # who says it gets it
    assert choose("fp32", "cpu") == ("fp32", "")


def test_apple_gpus_are_fast_and_unknown_devices_are_not() -> None:
    assert has_fast_bf16("mps")
    assert not has_fast_bf16("meta")


def test_a_cuda_card_that_only_emulates_bf16_is_not_fast(monkeypatch) -> None:
    def supported(including_emulation: bool = True) -> bool:
        return including_emulation

    monkeypatch.setattr(torch.cuda, "is_bf16_supported", supported)
    assert choose("auto", "cuda:0")[0] == "fp32"

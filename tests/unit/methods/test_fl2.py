"""(FL)²: thresholds, the sharpness-aware step and the weights of clients, each against NumPy."""

import numpy as np
import pytest
import torch
from torch import nn

from semifl.errors import UserError
from semifl.federation.world import Reply, Update
from semifl.learning.network import Network
from semifl.methods.fl2 import FL2, Batch, class_thresholds, doubt
from testbed import Testbed
from toys import toy_model


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def test_the_thresholds_by_hand() -> None:
    p = np.array([[0.9, 0.1, 0.0], [0.6, 0.3, 0.1], [0.2, 0.7, 0.1], [0.5, 0.1, 0.4]])
    t = (0.9 + 0.6 + 0.7 + 0.5) / 4  # 0.675
    mean = np.array([2.2, 1.2, 0.6]) / 4  # the largest is that of class 0
    np.testing.assert_allclose(class_thresholds(torch.tensor(p)).numpy(), t * mean / 0.55, rtol=1e-12)


@pytest.mark.parametrize("sharpness", [0.1, 0.0])
def test_a_step_by_hand(sharpness: float) -> None:
    """A linear model: every gradient is (p − y)ᵀx / n, also at the weights that were shifted."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(4, 3)).double()
    network = Network(module)
    A, b = module[1].weight.detach().numpy().copy(), module[1].bias.detach().numpy().copy()
    rng = np.random.default_rng(1)
    x, y, sure = rng.normal(size=(5, 4)), np.array([0, 2, 1, 0, 2]), np.array([True, False, True, True, False])
    Y, n = np.eye(3)[y], 5

    p = softmax(x @ A.T + b)
    residual = (p - Y) / n
    if sharpness:
        g = (p - Y)[sure] / sure.sum()
        T = np.abs(A) + 0.01
        scaled_A, scaled_b = T * (g.T @ x[sure]), g.sum(axis=0)
        length = np.sqrt((scaled_A**2).sum() + (scaled_b**2).sum())
        shifted = softmax(x @ (A + sharpness * T * scaled_A / length).T + b + sharpness * scaled_b / length)
        residual = residual + np.where(sure[:, None], (shifted - p) / n, 0)  # of KL(p ‖ shifted), sum over batch size

    batch = Batch(torch.tensor(x).view(5, 1, 2, 2), torch.tensor(y), torch.tensor(sure))
    terms = FL2(sharpness=sharpness).loss(network, batch)
    terms["loss"].backward()
    np.testing.assert_allclose(module[1].weight.grad.numpy(), residual.T @ x, rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(module[1].bias.grad.numpy(), residual.sum(axis=0), rtol=1e-7, atol=1e-12)
    np.testing.assert_allclose(terms["fix"].item(), -np.log(p[range(n), y]).mean(), rtol=1e-7)
    if sharpness:
        KL = (p * (np.log(p) - np.log(shifted)))[sure].sum() / n
        np.testing.assert_allclose(terms["flat"].item(), KL, rtol=1e-6)


def test_clients_that_are_less_sure_count_for_more() -> None:
    W = {"w": torch.tensor([1.0])}
    told = [(0.9, 3.0), (0.4, -1.0)]  # mean confidence over ten pictures, change
    replies = [
        Reply(n, Update({"w": torch.tensor([change])}, 1, {}, {}), "trained", "", {"confidence": 10 * t, "images": 10})
        for n, (t, change) in enumerate(told)
    ]
    mean = FL2().weighted_mean(replies, W)
    assert mean is not None
    assert mean["w"].item() == pytest.approx(1 + (0.1 * 3 - 0.6 * 1) / 0.7)
    halves = FL2().weighted_mean(replies, W, 0.5)
    assert halves is not None
    assert halves["w"].item() == pytest.approx(1 + (3 - 1) / 2)  # where no client may be more than one half
    assert doubt({}) == 1.0  # a site that tells nothing counts like one that is sure of nothing
    assert doubt({"confidence": 10.0, "images": 10}) == 0.05  # and nobody for nothing at all


def test_another_average_is_refused() -> None:
    with pytest.raises(UserError, match="aggregation"):
        Testbed(name="fl2", aggregation="median")


def test_where_nothing_is_shifted_a_pass_in_bf16_is_the_plain_one() -> None:
    network = Network(toy_model(3, 3), precision="bf16")
    network.module.eval()  # without dropout
    images = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    unshifted = {name: torch.zeros_like(each) for name, each in network.trained().items()}
    assert torch.equal(network.forward_at(unshifted, images), network(images))


@pytest.mark.parametrize(
    ("labels", "batch", "epochs"),
    [
        (40, 10, 510),  # 2048 // (4 · 5) = 102 calls of five epochs: what their program prints for SVHN with 40 labels
        (250, 10, 80),  # 2048 // (25 · 5) = 16 calls
        (10, 10, 2045),  # 409 calls
        (5000, 10, 5),  # a call is longer than the warm-up, and there is one
    ],
)
def test_the_warmup_is_the_authors_number_of_calls(labels: int, batch: int, epochs: int) -> None:
    assert FL2(server_batch=batch).with_warmup(labels).server_epochs == epochs


def test_the_server_warms_up_before_the_first_clients_only() -> None:
    def server_fit(index: int, **fields: object) -> dict[str, torch.Tensor]:
        testbed = Testbed(server_batch=4, statistics="server", lr=0.03, **fields)
        testbed.round(index, testbed.method.start(testbed.first))
        ((_, fitted),) = testbed.server.fits
        return fitted.weights

    def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
        return all(torch.equal(a[name], b[name]) for name in a)

    # Six labels in batches of four are two steps an epoch, so a call of two epochs is four: three calls fit into 13.
    ours = {"name": "fl2", "warmup_steps": 13, "server_epochs": 2}
    plain = {"name": "semifl", "clip_norm": 1.0, "lr_schedule": "constant"}
    assert same(server_fit(1, **ours), server_fit(1, **plain, server_epochs=6))
    assert same(server_fit(2, **ours), server_fit(2, **plain, server_epochs=2))

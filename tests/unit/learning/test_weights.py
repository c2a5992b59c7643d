"""Arithmetic on weights against NumPy and numbers derived by hand."""

import math
import weakref
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from semifl.learning.weights import Weights, average, bound_shares, digest, distance, momentum_step, zeros_like


def random_weights(seed: int) -> Weights:
    generator = torch.Generator().manual_seed(seed)
    return {"conv": torch.randn(4, 3, 3, 3, generator=generator), "bias": torch.randn(4, generator=generator)}


# average


def test_the_average_is_numpys_weighted_average() -> None:
    parts = [random_weights(seed) for seed in range(5)]
    masses = [1.0, 3.0, 0.5, 10.0, 2.0]

    mean = average(zip(parts, masses, strict=True))

    assert mean is not None
    assert list(mean) == ["conv", "bias"]
    for name in mean:
        expected = np.average([part[name].double().numpy() for part in parts], axis=0, weights=masses)
        np.testing.assert_allclose(mean[name].numpy(), expected, rtol=1e-5, atol=1e-6)


def test_an_average_by_hand() -> None:
    parts = [({"w": torch.tensor([1.0, 10.0])}, 1.0), ({"w": torch.tensor([5.0, -2.0])}, 3.0)]

    mean = average(parts)

    assert mean is not None
    assert mean["w"].tolist() == [4.0, 1.0]  # (1 + 3·5) / 4 and (10 − 3·2) / 4


def test_the_average_goes_by_name_and_not_by_place() -> None:
    one = {"a": torch.tensor([1.0]), "b": torch.tensor([10.0])}
    other = {"b": torch.tensor([20.0]), "a": torch.tensor([3.0])}

    mean = average([(one, 1.0), (other, 1.0)])

    assert mean is not None
    assert {name: tensor.item() for name, tensor in mean.items()} == {"a": 2.0, "b": 15.0}


def test_the_average_of_one_is_itself_and_its_own_copy() -> None:
    only = {"w": torch.tensor([0.1, 0.2])}

    mean = average([(only, 1.0)])

    assert mean is not None
    assert torch.equal(mean["w"], only["w"])
    assert mean["w"].data_ptr() != only["w"].data_ptr()


def test_the_average_leaves_its_terms_alone() -> None:
    parts = [random_weights(seed) for seed in range(3)]

    average((part, 2.0) for part in parts)

    for seed, part in enumerate(parts):
        assert all(torch.equal(part[name], tensor) for name, tensor in random_weights(seed).items())


@pytest.mark.parametrize("nothing", [[], iter(())])
def test_the_average_of_nothing_is_none(nothing: list[tuple[Weights, float]]) -> None:
    assert average(nothing) is None


def test_terms_are_folded_in_as_they_come() -> None:
    alive: list[weakref.ref[Tensor]] = []
    most = 0

    def terms() -> Iterator[tuple[Weights, float]]:
        nonlocal most
        for number in range(20):
            tensor = torch.full((10,), float(number))
            alive.append(weakref.ref(tensor))
            weights = {"w": tensor}
            del tensor
            most = max(most, sum(each() is not None for each in alive))
            yield weights, 1.0
            del weights

    mean = average(terms())

    assert mean is not None
    assert mean["w"].tolist() == [9.5] * 10  # (0 + 1 + … + 19) / 20
    assert most <= 2  # the term that is made and the one before it


# momentum_step


def test_two_momentum_steps_by_hand() -> None:
    # Round 1: v = 0.5·0 + (10 − 8) = 2, W = 10 − 2 = 8. Round 2: v = 0.5·2 + (8 − 4) = 5, W = 8 − 5 = 3.
    start, velocity = {"w": torch.tensor([10.0])}, {"w": torch.tensor([0.0])}

    first, velocity_1 = momentum_step(start, {"w": torch.tensor([8.0])}, velocity, 0.5)
    second, velocity_2 = momentum_step(first, {"w": torch.tensor([4.0])}, velocity_1, 0.5)

    assert (first["w"].item(), velocity_1["w"].item()) == (8.0, 2.0)
    assert (second["w"].item(), velocity_2["w"].item()) == (3.0, 5.0)
    assert (start["w"].item(), velocity["w"].item()) == (10.0, 0.0)  # inputs are left alone


def test_momentum_steps_are_sgd_of_rate_one() -> None:
    start = random_weights(0)
    parameters = {name: tensor.clone().requires_grad_() for name, tensor in start.items()}
    optimizer = torch.optim.SGD(parameters.values(), lr=1.0, momentum=0.7)
    weights, velocity = start, zeros_like(start)

    for seed in range(1, 5):
        target = random_weights(seed)
        weights, velocity = momentum_step(weights, target, velocity, 0.7)
        for name, parameter in parameters.items():
            parameter.grad = parameter.detach() - target[name]
        optimizer.step()

    for name in start:
        torch.testing.assert_close(weights[name], parameters[name].detach())


def test_without_a_target_nothing_moves() -> None:
    start, velocity = random_weights(0), random_weights(1)

    weights, kept = momentum_step(start, None, velocity, 0.9)

    assert all(torch.equal(weights[name], tensor) for name, tensor in random_weights(0).items())
    assert all(torch.equal(kept[name], tensor) for name, tensor in random_weights(1).items())


def test_momentum_zero_gives_the_target_whatever_the_velocity() -> None:
    # Quarters have no rounding, so equality is exact.
    start, target, velocity = ({"w": torch.tensor(values)} for values in ([1.25, -3.0], [0.5, 8.75], [100.0, -7.0]))

    weights, after = momentum_step(start, target, velocity, 0.0)

    assert weights["w"].tolist() == [0.5, 8.75]
    assert after["w"].tolist() == [0.75, -11.75]


def test_zeros_like_keeps_names_shapes_and_types() -> None:
    weights = {"a": torch.ones(2, 3), "b": torch.ones(4, dtype=torch.float64)}

    zeros = zeros_like(weights)

    assert {name: (tuple(each.shape), each.dtype) for name, each in zeros.items()} == {
        "a": ((2, 3), torch.float32),
        "b": ((4,), torch.float64),
    }
    assert all(not each.any() for each in zeros.values())


# distance


def test_distance_by_hand() -> None:
    a = {"x": torch.tensor([[3.0, 1.0]]), "y": torch.tensor([12.0])}
    b = {"y": torch.tensor([0.0]), "x": torch.tensor([[0.0, -3.0]])}

    assert distance(a, b) == 13.0  # 3² + 4² + 12² = 13²
    assert distance(a, a) == 0.0
    assert distance({}, {}) == 0.0


def test_distance_does_not_overflow_single_precision() -> None:
    far, origin = {"x": torch.tensor([3e30, 4e30])}, {"x": torch.tensor([0.0, 0.0])}

    assert math.isclose(distance(far, origin), 5e30, rel_tol=1e-6)


# digest


def test_the_digest_depends_on_content_alone() -> None:
    weights = random_weights(0)
    transposed = {"w": torch.arange(6.0).reshape(2, 3)}
    same_but_strided = {"w": torch.arange(6.0).reshape(2, 3).t().contiguous().t()}

    assert digest(weights) == digest({name: tensor.clone() for name, tensor in weights.items()})
    assert digest(transposed) == digest(same_but_strided)
    assert not same_but_strided["w"].is_contiguous()
    assert len(digest(weights)) == 16


@pytest.mark.parametrize(
    "other",
    [
        {"v": torch.zeros(2, 3)},
        {"w": torch.zeros(3, 2)},
        {"w": torch.zeros(6)},
        {"w": torch.zeros(2, 3, dtype=torch.int32)},
        {"w": torch.full((2, 3), -0.0)},
        {"w": torch.full((2, 3), 1e-45)},
        {"w": torch.zeros(2, 3), "more": torch.zeros(0)},
        {},
    ],
    ids=["name", "shape", "flat", "type", "sign of zero", "last bit", "one more", "none"],
)
def test_the_digest_changes_with(other: Weights) -> None:
    assert digest(other) != digest({"w": torch.zeros(2, 3)})


@pytest.mark.parametrize(
    ("weights", "max_share", "bounded"),
    [
        ([1, 2, 3], 0.5, [1, 2, 3]),  # the largest is exactly one half
        ([10, 2, 3], 0.5, [5, 2, 3]),  # as much as the others together
        ([10, 9, 1], 0.4, [2, 2, 1]),  # two are lowered: 2 of 5
        ([2**52, 1], 0.5, [1, 1]),
        ([7, 9], 0.4, [7, 7]),  # two can have no less than one half each
        ([7], 0.5, [7]),
        ([], 0.5, []),
        ([0, 0], 0.5, [0, 0]),
        ([10, 1], 1.0, [10, 1]),
    ],
)
def test_no_weight_is_more_than_its_share(weights, max_share, bounded):
    assert bound_shares(weights, max_share) == pytest.approx(bounded)


def test_a_mean_with_a_bound_is_the_mean_of_the_lowered_weights():
    terms = [({"w": torch.tensor([6.0])}, 10.0), ({"w": torch.tensor([1.0])}, 2.0), ({"w": torch.tensor([0.0])}, 3.0)]
    assert average(iter(terms), 0.5)["w"].item() == pytest.approx((5 * 6 + 2 * 1) / 10)
    assert average(iter(terms))["w"].item() == pytest.approx((10 * 6 + 2 * 1) / 15)
    assert average(iter([]), 0.5) is None

"""Sub-networks by hand: what is cut, and the mean over those who hold an entry."""

import pytest
import torch

from semifl.learning.layers import narrowed
from semifl.learning.subnetwork import average_over_holders, cut, narrow_shapes, output_layer
from semifl.learning.weights import Weights

F32 = torch.float32


def model() -> Weights:
    """Two input channels, hidden layers of 4 and 6 channels with a norm each, three classes."""
    sizes = {
        "stem": (4, 2, 3, 3),
        "norm1.weight": (4,),
        "norm1.bias": (4,),
        "middle": (6, 4, 1, 1),
        "norm2.weight": (6,),
        "head.weight": (3, 6),
        "head.bias": (3,),
    }
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(size, generator=generator) for name, size in sizes.items()}


@pytest.mark.parametrize(
    ("channels", "share", "count"),
    [(64, 1.0, 64), (64, 0.5, 32), (64, 0.0625, 4), (6, 0.25, 2), (3, 0.0625, 1), (1, 0.5, 1), (100, 0.07, 7)],
)
def test_channels_are_rounded_up(channels: int, share: float, count: int) -> None:
    assert narrowed(channels, share) == count  # 0.07 × 100 is a little above 7 in floating point


def test_shapes_by_hand() -> None:
    assert narrow_shapes(model(), 0.5) == {
        "stem": ((2, 2, 3, 3), F32),
        "norm1.weight": ((2,), F32),
        "norm1.bias": ((2,), F32),
        "middle": ((3, 2, 1, 1), F32),
        "norm2.weight": ((3,), F32),
        "head.weight": ((3, 3), F32),
        "head.bias": ((3,), F32),
    }
    assert narrow_shapes(model(), 0.25)["middle"] == ((2, 1, 1, 1), F32)
    assert narrow_shapes(model(), 0.25)["stem"] == ((1, 2, 3, 3), F32)
    assert {name: size for name, (size, _) in narrow_shapes(model(), 1.0).items()} == {
        name: tuple(tensor.shape) for name, tensor in model().items()
    }


def test_the_first_channels_are_cut() -> None:
    W = model()

    part = cut(W, narrow_shapes(W, 0.5))

    torch.testing.assert_close(part["stem"], W["stem"][:2], rtol=0, atol=0)
    torch.testing.assert_close(part["norm1.bias"], W["norm1.bias"][:2], rtol=0, atol=0)
    torch.testing.assert_close(part["middle"], W["middle"][:3, :2], rtol=0, atol=0)
    torch.testing.assert_close(part["head.weight"], W["head.weight"][:, :3], rtol=0, atol=0)
    torch.testing.assert_close(part["head.bias"], W["head.bias"], rtol=0, atol=0)
    assert all(tensor.is_contiguous() for tensor in part.values())


def test_the_output_layer() -> None:
    assert output_layer(model()) == ["head.weight", "head.bias"]


def test_a_mean_over_three_clients_of_different_widths_by_hand() -> None:
    start = {"inner": torch.full((4, 4), 100.0), "head": torch.full((2, 4), 100.0), "bias": torch.zeros(2)}

    def client(width: int, value: float) -> tuple[Weights, None]:
        inner, head = torch.full((width, width), value), torch.full((2, width), value)
        return {"inner": inner, "head": head, "bias": torch.full((2,), value)}, None

    mean = average_over_holders([client(1, 3.0), client(3, 6.0), client(2, 9.0)], start)

    assert mean is not None
    # The corner is held by all (mean 6), the next square by the clients of widths 2 and 3 (mean 7.5), then by one (6).
    assert mean["inner"].tolist() == [
        [6.0, 7.5, 6.0, 0.0],
        [7.5, 7.5, 6.0, 0.0],
        [6.0, 6.0, 6.0, 0.0],
        [0.0, 0.0, 0.0, 0.0],
    ]
    assert mean["head"].tolist() == [[6.0, 7.5, 6.0, 0.0]] * 2
    assert mean["bias"].tolist() == [6.0, 6.0]
    assert start["inner"].unique().tolist() == [100.0]  # nothing is written into the model that was sent


def test_rows_of_classes_that_a_client_does_not_have_are_not_its_own() -> None:
    start = {"inner": torch.zeros(2, 2), "head": torch.full((3, 2), 7.0), "bias": torch.full((3,), 7.0)}

    def client(width: int, value: float, classes: list[bool]) -> tuple[Weights, torch.Tensor]:
        inner, head = torch.full((width, width), value), torch.full((3, width), value)
        return {"inner": inner, "head": head, "bias": torch.full((3,), value)}, torch.tensor(classes)

    mean = average_over_holders([client(2, 1.0, [True, True, False]), client(1, 3.0, [False, True, False])], start)

    assert mean is not None
    assert mean["inner"].tolist() == [[2.0, 1.0], [1.0, 1.0]]
    assert mean["head"].tolist() == [[1.0, 1.0], [2.0, 1.0], [0.0, 0.0]]
    assert mean["bias"].tolist() == [1.0, 2.0, 0.0]


def test_a_mean_of_nothing() -> None:
    assert average_over_holders([], model()) is None

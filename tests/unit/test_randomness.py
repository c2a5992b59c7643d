"""Streams depend on their address alone, and different addresses never meet."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from semifl.randomness import Seed

STEPS = st.one_of(st.integers(-(10**9), 10**9), st.text(alphabet="ab1:/ ,\u00e9", max_size=4))
PATHS = st.lists(STEPS, max_size=4).map(tuple)


def typed(path: tuple[str | int, ...]) -> tuple[tuple[type, str | int], ...]:
    return tuple((type(step), step) for step in path)


def test_the_same_address_gives_the_same_stream() -> None:
    first = torch.rand(100, generator=Seed(7).at("round", 3, "client", 17))
    again = torch.rand(100, generator=Seed(7).at("round", 3, "client", 17))

    assert torch.equal(first, again)


def test_the_order_of_use_does_not_matter() -> None:
    addresses = [("round", t, "client", m) for t in range(3) for m in range(3)]

    forward = {address: torch.rand(10, generator=Seed(0).at(*address)) for address in addresses}
    backward = {}
    for address in reversed(addresses):
        torch.rand(1000, generator=Seed(0).at("something", "else"))
        backward[address] = torch.rand(10, generator=Seed(0).at(*address))

    assert all(torch.equal(forward[address], backward[address]) for address in addresses)


def test_the_global_generators_are_neither_used_nor_moved() -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = torch.rand(5, generator=Seed(0).at("a"))
    unmoved = torch.equal(before, torch.get_rng_state())
    torch.manual_seed(2)
    again = torch.rand(5, generator=Seed(0).at("a"))

    assert unmoved
    assert torch.equal(first, again)


def test_a_sub_tree_is_a_longer_address() -> None:
    seed = Seed(5)

    assert seed.under("round", 3).under("client", 2).number() == seed.under("round", 3, "client", 2).number()
    assert seed.under("round").at("x", 1).initial_seed() == seed.at("round", "x", 1).initial_seed()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("a", 12), ("a1", 2)),
        (("a", 12), ("a", "12")),
        (("a", 12), ("a", 1, 2)),
        (("ab",), ("a", "b")),
        (("a", "b"), ("b", "a")),
        (("a/str:1:b",), ("a", "b")),
        (("a",), ("a", "")),
        ((), ("",)),
        ((0,), ("0",)),
        ((-1,), ("-", 1)),
    ],
)
def test_addresses_that_look_alike_differ(one: tuple[str | int, ...], other: tuple[str | int, ...]) -> None:
    assert Seed(1).under(*one).number() != Seed(1).under(*other).number()


@given(one=PATHS, other=PATHS, value=st.integers(0, 3), other_value=st.integers(0, 3))
def test_addresses_are_equal_only_if_all_their_steps_are(
    one: tuple[str | int, ...], other: tuple[str | int, ...], value: int, other_value: int
) -> None:
    same_number = Seed(value, one).number() == Seed(other_value, other).number()

    assert same_number == (value == other_value and typed(one) == typed(other))


def test_the_seed_is_not_mistaken_for_a_step() -> None:
    assert Seed(1, (2,)).number() != Seed(2, (1,)).number()
    assert Seed(12).number() != Seed(1, (2,)).number()


@given(value=st.integers(), path=PATHS)
def test_numbers_have_63_bits(value: int, path: tuple[str | int, ...]) -> None:
    assert 0 <= Seed(value, path).number() < 2**63


def test_numbers_use_all_63_bits() -> None:
    numbers = [Seed(0, (i,)).number() for i in range(200)]

    # Each bit is a fair coin: 200 equal tosses have a chance of 2^-199.
    assert all(len({number >> bit & 1 for number in numbers}) == 2 for bit in range(63))


def test_torch_generators_carry_the_number_and_live_on_the_cpu() -> None:
    generator = Seed(3).at("weak", 0)

    assert generator.initial_seed() == Seed(3).under("weak", 0).number()
    assert generator.device == torch.device("cpu")


def test_numpy_generators_follow_the_same_rules() -> None:
    first = Seed(3).numpy_at("lambda").beta(0.75, 0.75, 20)
    again = Seed(3).numpy_at("lambda").beta(0.75, 0.75, 20)
    elsewhere = Seed(3).numpy_at("lambda", 0).beta(0.75, 0.75, 20)

    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, elsewhere)
    assert isinstance(Seed(3).numpy_at("lambda").bit_generator, np.random.PCG64)


def test_neighbouring_streams_are_uncorrelated() -> None:
    draws = 4000
    torch_streams = [
        torch.rand(draws, generator=Seed(0).at("client", m), dtype=torch.float64).numpy() for m in range(12)
    ]
    numpy_streams = [Seed(0).numpy_at("client", m).random(draws) for m in range(12)]

    for streams in (torch_streams, numpy_streams):
        correlation = np.corrcoef(streams) - np.eye(12)
        assert np.abs(correlation).max() < 6 / np.sqrt(draws)  # six standard deviations of an independent pair

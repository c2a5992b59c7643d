"""Messages through shared memory arrive as they were sent."""

import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from semifl.federation.packing import ALIGN
from semifl.federation.shared_memory import Handle, SharedMessages


class Pair(NamedTuple):
    first: Any
    second: Any


def send(thing: Any, copy: bool = True) -> Any:
    return SharedMessages().get(SharedMessages().put(thing, always_send_store=True), copy)


def assert_same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, Tensor):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert torch.equal(a, b)
    elif isinstance(a, dict):
        assert list(a) == list(b)
        for key in a:
            assert_same(a[key], b[key])
    elif isinstance(a, (tuple, list)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    else:
        assert a == b


NESTS = {
    "plain": (None, 1, 2.5, "text", b"bytes"),
    "nested": {"weights": {"a": torch.randn(3, 4), "b": torch.randn(5)}, "stats": (Pair(7, torch.ones(2)), [1, "x"])},
    "types": [
        torch.tensor([True, False, True]),
        torch.arange(5, dtype=torch.uint8),
        torch.randn(3, dtype=torch.float64),
        torch.randn(3).to(torch.bfloat16),
        torch.arange(-3, 3),
    ],
    "no dimension": (torch.tensor(1.5), torch.tensor(True), torch.tensor(7, dtype=torch.int64)),
    "empty": {
        "a": torch.empty(0),
        "b": torch.empty(0, 3, dtype=torch.float64),
        "c": torch.ones(2),
        "d": torch.empty(2, 0),
    },
    "only empty": torch.empty(0, dtype=torch.int64),
    "not contiguous": [torch.arange(12.0).reshape(3, 4).t(), torch.arange(20)[::3], torch.ones(1, 3).expand(4, 3)],
    "channels last": torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "part of something": torch.arange(1000)[500:505],
}


@pytest.mark.parametrize("copy", [True, False])
@pytest.mark.parametrize("nest", NESTS.values(), ids=NESTS.keys())
def test_nests_arrive_as_they_were(nest: Any, copy: bool) -> None:
    assert_same(send(nest, copy), nest)


def test_a_parameter_arrives_as_a_tensor_without_gradient() -> None:
    parameter = nn.Parameter(torch.tensor([1.0, 2.0]))

    received = send(parameter * 3)

    assert received.tolist() == [3.0, 6.0]
    assert not received.requires_grad


def test_the_same_tensor_twice_arrives_once() -> None:
    tensor = torch.ones(1000)
    mailbox = SharedMessages()

    handle = mailbox.put((tensor, {"again": tensor}))

    assert handle.spans == [(0, 4000)]
    assert_same(SharedMessages().get(handle, copy=True), (tensor, {"again": tensor}))


def test_only_a_small_head_travels_beside_the_shared_memory() -> None:
    handle = SharedMessages().put({"w": torch.zeros(1_000_000)})

    assert len(handle.head) < 1000
    assert handle.store is not None
    assert handle.store.is_shared()
    assert len(handle.store) >= 4_000_000


def test_tensors_start_at_cache_lines_and_do_not_overlap() -> None:
    handle = SharedMessages().put([torch.ones(n, dtype=torch.uint8) for n in (1, 64, 65, 0, 3)])

    assert [length for _, length in handle.spans] == [1, 64, 65, 0, 3]
    assert [start for start, _ in handle.spans] == [0, 64, 128, 256, 256]
    assert all(start % ALIGN == 0 for start, _ in handle.spans)


def test_a_copy_survives_the_next_message_and_a_view_does_not() -> None:
    writer, reader = SharedMessages(), SharedMessages()
    first = writer.put(torch.full((4,), 1.0))
    copy, view = reader.get(first, copy=True), reader.get(first, copy=False)

    writer.put(torch.full((4,), 2.0))

    assert copy.tolist() == [1.0] * 4
    assert view.tolist() == [2.0] * 4


def test_a_copy_is_the_readers_own_to_write() -> None:
    writer, reader = SharedMessages(), SharedMessages()
    handle = writer.put((torch.zeros(3), torch.zeros(3)))
    mine, others = reader.get(handle, copy=True), reader.get(handle, copy=False)

    mine[0].add_(5)

    assert mine[0].tolist() == [5.0] * 3
    assert mine[1].tolist() == others[0].tolist() == [0.0] * 3


def test_the_store_is_sent_when_it_grew_and_only_then() -> None:
    writer, reader = SharedMessages(), SharedMessages()
    sizes = [10, 5, 10, 1000, 3, 1001, 0]

    handles: list[Handle] = []
    for number, size in enumerate(sizes):
        handles.append(writer.put((number, torch.full((size,), float(number)))))
        received = reader.get(handles[-1], copy=False)
        assert_same(received, (number, torch.full((size,), float(number))))

    # 1,000 floats take 4,000 bytes, rounded up to 4,032 by the alignment: 1,001 need no more.
    assert [handle.store is not None for handle in handles] == [True, False, False, True, False, False, False]


def test_a_view_of_an_outgrown_store_stays_valid() -> None:
    writer, reader = SharedMessages(), SharedMessages()
    view = reader.get(writer.put(torch.full((4,), 1.0)), copy=False)

    reader.get(writer.put(torch.full((4000,), 2.0)), copy=False)

    assert view.tolist() == [1.0] * 4


def test_a_new_reader_can_be_given_the_store() -> None:
    writer = SharedMessages()
    writer.put(torch.zeros(100))
    handle = writer.put(torch.ones(7), always_send_store=True)

    assert SharedMessages().get(handle, copy=True).tolist() == [1.0] * 7


def test_a_message_that_cannot_be_sent_spoils_nothing() -> None:
    writer, reader = SharedMessages(), SharedMessages()
    reader.get(writer.put(torch.ones(3)), copy=True)

    with pytest.raises((pickle.PicklingError, AttributeError)):
        writer.put((torch.zeros(3), lambda: None))

    assert reader.get(writer.put(torch.full((3,), 4.0)), copy=True).tolist() == [4.0] * 3


def test_arrays_and_large_messages() -> None:
    weights = {f"layer {n}": torch.randn(n + 1, 7, generator=torch.Generator().manual_seed(n)) for n in range(150)}

    received = send({"weights": weights, "array": np.arange(5)})

    assert_same(received["weights"], weights)
    np.testing.assert_array_equal(received["array"], np.arange(5))

"""What can be said about other devices on a machine that may have none; with a GPU, the whole run is tried on it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from semifl.cli import invoke
from semifl.configuration.config import decode
from semifl.errors import UserError
from semifl.learning.devices import find_device
from semifl.learning.network import Network
from semifl.learning.prefetching import _beside, one_ahead, prefetched
from semifl.running.loop import start
from toys import toy_model, toy_table


class Pair(NamedTuple):
    images: torch.Tensor
    views: tuple[torch.Tensor, ...]


class Nested(NamedTuple):
    pair: Pair
    labels: torch.Tensor


def test_every_part_of_a_batch_goes_to_the_device() -> None:
    # "meta" is a device that every machine has: tensors without content.
    batch = Nested(Pair(torch.ones(2), (torch.ones(3), torch.ones(4))), torch.zeros(2))
    (moved,) = prefetched([batch], torch.device("meta"))
    assert isinstance(moved, Nested)
    assert isinstance(moved.pair, Pair)
    parts = [moved.pair.images, *moved.pair.views, moved.labels]
    assert [part.device.type for part in parts] == ["meta"] * 4
    assert [tuple(part.shape) for part in parts] == [(2,), (3,), (4,), (2,)]
    assert next(prefetched([batch], torch.device("cpu"))) is batch


def test_a_batch_is_on_its_way_before_the_one_before_it_is_used() -> None:
    happened = []

    def copied(count: int) -> Iterator[int]:
        for number in range(count):
            happened.append(f"copy {number}")
            yield number

    for number in one_ahead(copied(3)):
        happened.append(f"use {number}")
    assert happened == ["copy 0", "copy 1", "use 0", "copy 2", "use 1", "use 2"]
    assert list(one_ahead(copied(1))) == [0]
    assert list(one_ahead([])) == []


def test_a_card_fetches_from_pinned_memory_beside_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of calls, with a card that only writes them down."""
    happened: list[str] = []

    class Stream:
        def __init__(self, device: object) -> None:
            pass

        def record_event(self) -> str:
            happened.append("copied")
            return "copied"

        def wait_event(self, event: str) -> None:
            happened.append(f"wait until {event}")

    @contextmanager
    def beside(stream: Stream) -> Iterator[None]:
        happened.append("beside")
        yield
        happened.append("back")

    monkeypatch.setattr(torch.cuda, "Stream", Stream)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(torch.cuda, "stream", beside)
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda part: happened.append("pin") or part)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda part, stream: happened.append("keep"))
    for batch in _beside([(torch.zeros(1),), (torch.ones(1),)], torch.device("cpu")):
        happened.append(f"use {batch[0].item():.0f}")
    copy, used = ["pin", "beside", "back", "copied"], ["wait until copied", "keep"]
    assert happened == [*copy, *copy, *used, "use 0", *used, "use 1"]


def test_a_network_lives_on_its_device_with_its_gradient() -> None:
    network = Network(toy_model(3, 3), "meta")
    gradient = network.vector.grad
    assert gradient is not None
    assert {network.vector.device.type, gradient.device.type} == {"meta"}
    assert {parameter.device.type for parameter in network.module.parameters()} == {"meta"}
    assert {buffer.device.type for buffer in network.module.buffers()} == {"meta"}


def test_auto_takes_what_there_is_and_the_rest_is_one_sentence() -> None:
    has_cuda, has_mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    assert find_device("auto") == ("cuda" if has_cuda else "mps" if has_mps else "cpu")
    assert find_device("cpu") == "cpu"
    with pytest.raises(UserError, match="not one of auto, cpu, cuda, mps"):
        find_device("tpu")
    for name, there in (("cuda", has_cuda), ("mps", has_mps)):
        if not there:
            with pytest.raises(UserError, match="this machine has none"):
                find_device(name)


def test_a_missing_device_ends_a_run_before_it_begins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    assert invoke(["run", "digits", "--device", "cuda", "--out", str(tmp_path / "run")]) == 2
    assert "device 'cuda'" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("device", ["cuda", "mps"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_on_a_gpu_learns_the_same(device: str, workers: int, tmp_path: Path) -> None:
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there[device]:
        pytest.skip(f"this machine has no {device}: nothing of that device was tried")
    table = toy_table(name="semifl_released")
    on_cpu = start(decode(table), tmp_path / "cpu")
    on_gpu = start(decode(table), tmp_path / device, workers, device)
    assert on_gpu["accuracy"] == pytest.approx(on_cpu["accuracy"], abs=12)

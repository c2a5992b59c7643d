"""What clients keep between rounds: versions, pruning, replay."""

from pathlib import Path

import pytest
import torch
from torch import nn

from semifl.errors import UserError
from semifl.federation.memory import ClientMemory
from semifl.learning.network import Network


@pytest.fixture
def memory(tmp_path: Path) -> ClientMemory:
    return ClientMemory(tmp_path / "memory")


def value(number: float) -> dict[str, torch.Tensor]:
    return {"momentum": torch.full((3,), float(number))}


def kept(memory: ClientMemory, client: int, before: int) -> float | None:
    found = memory.read(client, before)
    return None if found is None else found["momentum"][0].item()


def rounds_on_disk(memory: ClientMemory, client: int) -> list[int]:
    return sorted(int(path.stem) for path in (memory.folder / str(client)).iterdir())


def test_a_client_that_never_took_part_remembers_nothing(memory: ClientMemory) -> None:
    assert memory.read(3, before=1) is None
    assert not memory.folder.exists()


def test_what_was_written_is_read_in_the_next_round(memory: ClientMemory) -> None:
    wanted = {
        "momentum": torch.randn(4, 5),
        "strided": torch.arange(12.0).reshape(3, 4).t(),
        "count": torch.tensor(7),
        "empty": torch.zeros(0),
    }

    memory.write(3, 1, wanted)
    found = memory.read(3, before=2)

    assert found is not None
    assert found.keys() == wanted.keys()
    assert all(
        torch.equal(found[name], tensor) and found[name].dtype == tensor.dtype for name, tensor in wanted.items()
    )


def test_the_weights_of_a_network_can_be_kept(memory: ClientMemory) -> None:
    weights = Network(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2))).weights()  # views of one vector

    memory.write(0, 1, weights)
    found = memory.read(0, before=2)

    assert found is not None
    assert all(torch.equal(found[name], tensor) for name, tensor in weights.items())


def test_a_round_reads_what_was_kept_before_it(memory: ClientMemory) -> None:
    memory.write(3, 2, value(2))
    memory.write(3, 3, value(3))

    # A round that is replayed must not see what it wrote itself the first time.
    assert [kept(memory, 3, before) for before in (1, 2, 3, 4, 100)] == [None, None, 2.0, 3.0, 3.0]


def test_rounds_are_numbers_and_not_words(memory: ClientMemory) -> None:
    memory.write(0, 9, value(9))
    memory.write(0, 10, value(10))

    assert kept(memory, 0, before=11) == 10.0


def test_clients_have_their_own(memory: ClientMemory) -> None:
    memory.write(1, 1, value(1))
    memory.write(11, 1, value(11))

    assert kept(memory, 1, before=2) == 1.0
    assert kept(memory, 11, before=2) == 11.0
    assert kept(memory, 111, before=2) is None


def test_a_replayed_round_overwrites(memory: ClientMemory) -> None:
    memory.write(3, 4, value(1))
    memory.write(3, 4, value(2))

    assert kept(memory, 3, before=5) == 2.0


@pytest.mark.parametrize(
    "participations", [[1, 2, 3, 4, 5, 6, 7], [1, 4, 5, 9, 10, 12], [2, 20, 21, 22], [5], [1, 3, 5, 7, 9]]
)
def test_pruning_keeps_what_the_last_two_checkpoints_need(memory: ClientMemory, participations: list[int]) -> None:
    for at, round in enumerate(participations):
        memory.write(0, round, value(round))

        # While round t runs, the checkpoints of t − 1 and t − 2 exist; a resumed run replays from round t or t − 1 on.
        for replayed in (round - 1, round, round + 1):
            before = [earlier for earlier in participations[: at + 1] if earlier < replayed]
            assert kept(memory, 0, replayed) == (max(before) if before else None), (round, replayed)
        assert len(rounds_on_disk(memory, 0)) <= 3


def test_pruning_touches_nobody_else(memory: ClientMemory) -> None:
    memory.write(7, 1, value(1))
    for round in range(2, 12):
        memory.write(0, round, value(round))

    assert rounds_on_disk(memory, 7) == [1]
    assert rounds_on_disk(memory, 0) == [9, 10, 11]


def test_forgetting_what_an_interrupted_round_left(memory: ClientMemory) -> None:
    for client, rounds in ((0, [1, 2, 3]), (1, [3]), (2, [2])):
        for round in rounds:
            memory.write(client, round, value(round))

    memory.forget_after(2)

    assert rounds_on_disk(memory, 0) == [1, 2]
    assert rounds_on_disk(memory, 1) == []
    assert rounds_on_disk(memory, 2) == [2]
    assert kept(memory, 1, before=4) is None


def test_forgetting_before_anything_was_kept(memory: ClientMemory) -> None:
    memory.forget_after(0)

    assert not memory.folder.exists()


def test_a_write_that_was_cut_short_is_ignored(memory: ClientMemory) -> None:
    memory.write(0, 1, value(1))
    (memory.folder / "0" / "2.safetensors.part").write_bytes(b"half")

    memory.forget_after(5)

    assert kept(memory, 0, before=9) == 1.0


@pytest.mark.parametrize("damage", ["cut", "empty", "garbage"])
def test_a_damaged_file_is_named(memory: ClientMemory, damage: str) -> None:
    memory.write(12, 3, value(3))
    path = memory.folder / "12" / "3.safetensors"
    whole = path.read_bytes()
    path.write_bytes({"cut": whole[:-5], "empty": b"", "garbage": b"\xff" * 100}[damage])

    with pytest.raises(UserError) as caught:
        memory.read(12, before=4)

    assert str(caught.value).startswith(f"the memory of client 12 in {path} is damaged: ")


def test_rounds_that_are_played_again_leave_nothing_of_the_later_ones(memory: ClientMemory) -> None:
    for index in (10, 9, 8, 20, 7):  # a hub may ask in any order
        memory.write(0, index, value(index))
    assert rounds_on_disk(memory, 0) == [7]
    memory.write(0, 8, value(8))
    assert kept(memory, 0, before=9) == 8.0

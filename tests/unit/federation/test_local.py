"""A federation on one machine, however many clients it has."""

import pickle
from pathlib import Path

import pytest
import torch

from faults.harness import assert_same
from semifl.configuration.build import build_world
from semifl.configuration.config import decode
from semifl.data import partition
from semifl.data.mapped import place_of
from semifl.federation.local import FEW, draw
from semifl.running.loop import start
from toys import toy_table


@pytest.mark.parametrize("size", [1, 7, 999, 5 * FEW, 5 * FEW + 1, 100_003])
@pytest.mark.parametrize("count", [1, 2, 5, 90])
def test_a_cohort_is_what_a_permutation_of_all_begins_with(size: int, count: int) -> None:
    """Of many clients, too, where nobody makes the whole permutation."""
    for seed in range(20):
        whole = torch.randperm(size, generator=torch.Generator().manual_seed(seed))
        expected = tuple(sorted(whole[:count].tolist()))
        assert draw(size, min(count, size), torch.Generator().manual_seed(seed)) == expected


def test_a_run_whose_table_lies_in_a_file_has_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = decode({**toy_table(), "rounds": 2, "labels_only": False})
    start(config, tmp_path / "memory")
    monkeypatch.setattr(partition, "MANY", 4)
    start(config, tmp_path / "file")
    start(config, tmp_path / "workers", 2)
    assert_same(tmp_path / "file", tmp_path / "memory")
    assert_same(tmp_path / "workers", tmp_path / "memory")


def test_the_table_travels_by_its_place_here_and_whole_to_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partition, "MANY", 4)
    place = build_world(decode(toy_table())).place(None, "cpu")
    here, elsewhere = pickle.loads(pickle.dumps(place)), pickle.loads(pickle.dumps(place.for_other_machines()))
    assert place_of(here.holdings.order) == place_of(place.holdings.order)
    assert place_of(elsewhere.holdings.order) is None
    for client in range(4):
        assert here.holdings[client].tolist() == elsewhere.holdings[client].tolist() == place.holdings[client].tolist()

"""Runs side by side: what becomes of one is its own affair."""

from pathlib import Path

from semifl.studies.table_runs import fill
from semifl.studies.tables import Cell
from toys import toy_table


def test_a_run_whose_process_is_killed_leaves_the_others_alone(tmp_path: Path) -> None:
    table = {**toy_table(), "rounds": 1, "labels_only": False}
    deadly = {**table, "method": {**table["method"], "name": "poison:Deadly"}}
    cells = [Cell("deadly", "deadly", "", deadly, ""), Cell("fine", "fine", "", table, "")]
    done = {each.cell.name: each for each in fill([(cell, 0) for cell in cells], tmp_path, 2, 1, "cpu")}
    assert done["deadly"].failed
    assert done["deadly"].text == "its process was killed; the same command goes on"
    assert not done["fine"].failed
    assert (tmp_path / "fine-seed-0/result.json").exists()

"""Cells: the same whoever computes them, kept at once, never computed twice."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from semifl.theory import cells
from semifl.theory.cells import Repetition, finish
from semifl.theory.settings import SETTINGS

SETTING = SETTINGS["adequate"]
CELLS = [Repetition(SETTING, 20, n, repetition) for n in (0, 500) for repetition in range(3)]


def test_the_number_of_workers_leaves_no_trace(tmp_path: Path) -> None:
    alone = finish(CELLS, tmp_path / "one.jsonl", 1)
    together = finish(CELLS, tmp_path / "two.jsonl", 2)
    assert alone == together
    assert len(set(alone.values())) > 3


def test_finished_cells_are_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cells.jsonl"
    first = finish(CELLS, path, 1)
    monkeypatch.setattr(cells, "excess_risk", lambda *_: pytest.fail("computed again"))
    assert finish(CELLS, path, 1) == first


def test_an_interruption_leaves_what_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "cells.jsonl"
    real, calls = cells.excess_risk, iter(range(100))

    def interrupted(*arguments):
        if next(calls) == 4:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(cells, "excess_risk", interrupted)
    with pytest.raises(KeyboardInterrupt):
        finish(CELLS, path, 1)
    assert len(path.read_text().splitlines()) == 4
    monkeypatch.setattr(cells, "excess_risk", real)
    advanced: list[int] = []
    assert finish(CELLS, path, 1, advanced.append) == finish(CELLS, tmp_path / "whole.jsonl", 1)
    assert advanced == [4, 1, 1]


def test_a_line_cut_short_is_computed_again(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    first = finish(CELLS, path, 1)
    path.write_text(path.read_text()[:-9])
    assert finish(CELLS, path, 1) == first
    assert len([json.loads(line) for line in path.read_text().splitlines()]) == len(CELLS)


def test_another_number_in_the_setting_is_another_cell() -> None:
    assert replace(CELLS[0], setting=replace(SETTING, h_scale=0.4)).key != CELLS[0].key
    assert replace(CELLS[0], setting=replace(SETTING, problem=replace(SETTING.problem, tilt=0.1))).key != CELLS[0].key
    assert replace(CELLS[0], setting=replace(SETTING, name="other", sizes=(1, 2))).key == CELLS[0].key

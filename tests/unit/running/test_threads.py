"""How many threads the server trains with, where nobody says so."""

from pathlib import Path

import pytest

from semifl.configuration.build import build_world
from semifl.configuration.config import decode, read
from semifl.running.context import with_threads
from semifl.running.loop import start, start_or_resume
from toys import toy_table


@pytest.mark.parametrize(
    ("batch", "threads"),
    # 3 × 3 kernels from 3 to 8 channels over 8 × 8 pixels: 13,824 multiply-adds, and 24 of the last layer, per picture;
    # 10⁸ are reached with 7,222 pictures.
    [(4, 1), (7_221, 1), (7_222, 2)],
)
def test_they_follow_from_the_arithmetic_of_a_step(batch: int, threads: int) -> None:
    table = {**toy_table(server_batch=batch), "threads": 0}
    table["model"] = {"name": "toys:toy_model", "hidden": 8}
    world = build_world(decode(table))
    assert with_threads(world.config, world.place(None, "cpu")).run.threads == threads


def test_what_is_asked_for_stands() -> None:
    world = build_world(decode({**toy_table(), "threads": 5}))
    assert with_threads(world.config, world.place(None, "cpu")).run.threads == 5


def test_the_choice_is_recorded_and_kept(tmp_path: Path) -> None:
    table = {**toy_table(), "threads": 0, "rounds": 1, "labels_only": False}
    first = start(decode(table), tmp_path / "run")
    assert read(tmp_path / "run/config.toml")["threads"] == 1
    assert start_or_resume(decode(table), tmp_path / "run") == first  # the same run, though the choice is open again

"""Filling a table: several runs side by side, each resumable, a failed one never stopping the rest."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

from semifl.configuration.config import decode
from semifl.errors import error_sentence, full_traceback, has_traceback
from semifl.running.loop import start_or_resume
from semifl.studies.tables import Cell, run_directory


class CellRun(NamedTuple):
    """Outcome of one run of a cell."""

    cell: Cell
    seed: int
    failed: bool
    text: str
    trace: str = ""  # the whole traceback, where it tells more than the text


def fill(todo: Sequence[tuple[Cell, int]], folder: Path, jobs: int, workers: int, device: str) -> Iterator[CellRun]:
    """Outcomes as they come. Small runs are done fastest side by side, one process each."""
    if jobs == 1:
        yield from (run_cell(cell, seed, folder, workers, device) for cell, seed in todo)
        return
    with ThreadPoolExecutor(jobs) as pool:
        begun = [pool.submit(_run_apart, cell, seed, folder, workers, device) for cell, seed in todo]
        try:
            for future in as_completed(begun):
                yield future.result()
        except BaseException:  # Ctrl-C reaches the runs as well; those not begun must not begin now
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _run_apart(cell: Cell, seed: int, folder: Path, workers: int, device: str) -> CellRun:
    """In a process of its own: if that is killed, the others go on."""
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(1, mp_context=context) as alone:
        try:
            return alone.submit(run_cell, cell, seed, folder, workers, device).result()
        except BrokenProcessPool:
            return CellRun(cell, seed, True, "its process was killed; the same command goes on")


def run_cell(cell: Cell, seed: int, folder: Path, workers: int, device: str) -> CellRun:
    directory = run_directory(folder, cell, seed)
    try:
        result = start_or_resume(decode({**cell.config, "seed": seed}), directory, workers, device)
    except Exception as error:  # a bug in one method must not cost the others their results
        return CellRun(cell, seed, True, error_sentence(error), full_traceback(error) if has_traceback(error) else "")
    return CellRun(cell, seed, False, f"done in {result['seconds']:.0f} s")

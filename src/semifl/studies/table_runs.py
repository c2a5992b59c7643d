"""Filling a table: several runs side by side, each resumable, a failed one never stopping the rest."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import NamedTuple

from semifl.configuration.config import decode
from semifl.errors import RunStopped, UserError
from semifl.running.loop import start_or_resume
from semifl.studies.tables import Cell, run_directory


class CellRun(NamedTuple):
    cell: Cell
    seed: int
    failed: bool
    text: str


def fill(todo: Sequence[tuple[Cell, int]], folder: Path, jobs: int, workers: int, device: str) -> Iterator[CellRun]:
    """Outcomes as they come. Small runs are done fastest side by side, one process each."""
    if jobs == 1:
        yield from (run_cell(cell, seed, folder, workers, device) for cell, seed in todo)
        return
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        jobs_of = {pool.submit(run_cell, cell, seed, folder, workers, device): (cell, seed) for cell, seed in todo}
        try:
            for future in as_completed(jobs_of):
                try:
                    yield future.result()
                except BrokenProcessPool:
                    yield CellRun(*jobs_of[future], True, "a process was killed; the same command goes on")
        except BaseException:  # Ctrl-C reaches the runs as well; those not begun must not begin now
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def run_cell(cell: Cell, seed: int, folder: Path, workers: int, device: str) -> CellRun:
    directory = run_directory(folder, cell, seed)
    try:
        result = start_or_resume(decode({**cell.config, "seed": seed}), directory, workers, device)
    except (UserError, RunStopped) as error:
        return CellRun(cell, seed, True, str(error))
    except Exception as error:  # a bug in one method must not cost the others their results
        return CellRun(cell, seed, True, f"{type(error).__name__}: {error}")
    return CellRun(cell, seed, False, f"{result['accuracy']:.1f} % in {result['seconds']:.0f} s")

"""Many runs on a cluster, each on one worker.

Where the workers see the folder of the runs, they write there, and a run whose worker dies goes on from its last round.
Elsewhere a run lives on its worker's disk and is brought here when it is done; if the worker dies, it begins again.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from semifl.configuration.code import refuse_foreign_code, remember_own_run
from semifl.configuration.config import read
from semifl.durable import replace_file
from semifl.errors import RunStopped, UserError
from semifl.federation.cluster.address import Cluster
from semifl.federation.pools import needing_dask
from semifl.federation.workers import JobFailed, Log
from semifl.learning.devices import find_device
from semifl.records.directory import RunDirectory
from semifl.regular import remove_folder
from semifl.running.loop import resume
from semifl.studies.table_runs import CellRun, run_cell
from semifl.studies.tables import Cell, run_directory


class Errand(NamedTuple):
    """A run that a worker is to do; `mark` is a file in the folder, by which whoever sees the folder knows it."""

    cell: Cell
    seed: int
    folder: Path
    mark: str
    device: str


class Brought(NamedTuple):
    """What a worker says of a run, and its files if they do not lie where they belong."""

    done: CellRun
    files: dict[str, bytes]


def fill_on(cluster: Cluster, todo: Sequence[tuple[Cell, int]], folder: Path, log: Log) -> Iterator[CellRun]:
    """Outcomes as they come, from workers as they are there."""
    with _marked(folder) as mark, opened(cluster, log) as pool:
        errands = [Errand(cell, seed, folder.absolute(), mark, cluster.device) for cell, seed in todo]
        for number, answer in pool.as_done(run_there, errands):
            cell, seed = todo[number]
            if isinstance(answer, JobFailed):
                yield CellRun(cell, seed, True, answer.reason, answer.trace)
                continue
            directory = run_directory(folder, cell, seed)
            write_files(directory, answer.files)
            if (directory / "config.toml").is_file():  # run by this person, though not here
                remember_own_run(read(directory / "config.toml"))
            yield answer.done


def run_there(place: None, common: None, errand: Errand) -> Brought:
    """On a worker."""
    from semifl.federation.cluster.worker import scratch

    device = find_device(errand.device)
    if (errand.folder / errand.mark).exists():
        return Brought(run_cell(errand.cell, errand.seed, errand.folder, 1, device), {})
    # Cells of another table, or of the same one with another --set, may have the same name.
    folder = scratch() / hashlib.sha256(json.dumps(errand.cell.config, sort_keys=True).encode()).hexdigest()[:16]
    done = run_cell(errand.cell, errand.seed, folder, 1, device)
    if done.failed:
        return Brought(done, {})
    directory = run_directory(folder, errand.cell, errand.seed)
    brought = Brought(done, files_of(directory))
    remove_folder(directory)  # a worker may live for weeks
    return brought


def finish_on(cluster: Cluster, runs: Sequence[Path], log: Log) -> None:
    """Go on with runs that are not finished, where all machines see them."""
    unfinished = [path.absolute() for path in runs if not RunDirectory(path).summary()]
    for path in unfinished:
        refuse_foreign_code(read(path / "config.toml"), path)
    if not unfinished:
        return
    with opened(cluster, log) as pool:
        for number, answer in pool.as_done(resume_there, [(path, cluster.device) for path in unfinished]):
            if isinstance(answer, JobFailed):
                raise RunStopped(f"{unfinished[number]}: {answer.reason}")


def resume_there(place: None, common: None, errand: tuple[Path, str]) -> None:
    """On a worker."""
    directory, device = errand
    if not (directory / "config.toml").exists():
        raise UserError("the run lies where this worker cannot see it; runs are continued in a folder that all share")
    remember_own_run(read(directory / "config.toml"))  # whoever sends this has looked
    resume(directory, 1, find_device(device))


@contextmanager
def opened(cluster: Cluster, log: Log) -> Iterator[Any]:
    with needing_dask():
        from semifl.federation.cluster.pool import ClusterPool
    pool = ClusterPool(None, cluster, log)
    try:
        yield pool
    finally:
        pool.close()


@contextmanager
def _marked(folder: Path) -> Iterator[str]:
    """A file that only this command makes: a folder of the same name on another disk does not have it."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / f".seen-{uuid.uuid4().hex}"
    mark.touch()
    try:
        yield mark.name
    finally:
        mark.unlink(missing_ok=True)


def files_of(directory: Path) -> dict[str, bytes]:
    paths = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    return {path.relative_to(directory).as_posix(): path.read_bytes() for path in paths}


def write_files(directory: Path, files: dict[str, bytes]) -> None:
    """The summary comes last: a run whose files are not all there must not look finished."""
    for name in sorted(files, key=lambda name: name == "result.json"):
        replace_file(directory / name, partial(_write, files[name]))


def _write(content: bytes, path: Path) -> None:
    path.write_bytes(content)

"""What a worker of the cluster does: it says what it is, keeps the place of each run, and does one job at a time.

One at a time, because random numbers of a model's own (dropout) and the number of threads belong to a process: a worker
with several threads would give other bits. A machine with many cores has many workers (`dask worker --nworkers`).
"""

from __future__ import annotations

import platform
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import torch
from distributed import get_worker

import semifl
from semifl.errors import UserError
from semifl.federation.packing import Packed, pack, unpack
from semifl.federation.sites import Place
from semifl.federation.workers import Job, JobFailed, threads
from semifl.learning.devices import find_device
from semifl.provenance import package_digest
from semifl.regular import remove_folder

FORGOTTEN_AFTER = 3600.0  # seconds: a run that was killed cannot say that it needs its place no more
UNKNOWN = "unknown"  # the answer of a worker that does not have the run's place


@dataclass
class _Kept:
    place: Any
    used: float
    message: tuple[str, Any] = ("", None)  # the last one to all, by its name


_PLACES: dict[str, _Kept] = {}
_ONE_AT_A_TIME = threading.Lock()


class Introduction(NamedTuple):
    """What a worker says of itself."""

    versions: dict[str, str]
    kind: str  # what bits depend on beside the versions
    threads: int


def introduce(device: str, dask_worker: Any) -> Introduction:
    """Called by Dask, which knows the worker by the name of the parameter."""
    try:
        found = find_device(device)
    except UserError as error:
        found = str(error)
    card = torch.cuda.get_device_name() if found.startswith("cuda") else ""
    kind = f"{found}, {card or torch.backends.cpu.get_cpu_capability()}"
    return Introduction(versions(), kind, dask_worker.state.nthreads)


def versions() -> dict[str, str]:
    """All that must be the same at both ends: what is sent is pickled, and bits are promised."""
    return {
        "semifl": semifl.__version__,
        "the code of semifl": package_digest(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "Python": ".".join(platform.python_version_tuple()[:2]),
    }


def receive(run: str, packed: Packed, device: str, dask_worker: Any) -> str:
    """Keep a run's place; or why that cannot be. It waits for no job: Dask would take the worker for dead."""
    now = time.monotonic()
    for other in [name for name, kept in _PLACES.items() if now - kept.used > FORGOTTEN_AFTER]:
        forget(other, dask_worker)
    try:
        place = unpack(packed)
        if isinstance(place, Place):
            place = _at_home(place, device, _folder(run, dask_worker))
    except (UserError, ImportError, AttributeError) as error:  # the last two: a model or method of one's own
        return str(error)
    except OSError as error:
        return f"cannot open {error.filename}: {error.strerror}; put the file there, or into a folder all share"
    _PLACES[run] = _Kept(place, now)
    return ""


def _at_home(place: Place, device: str, folder: Path) -> Place:
    """Memory lies with the run; frozen features, which anybody can compute again, lie here."""
    features = replace(place.features, folder=folder) if place.features else None
    facts = features.facts_of_tickets() if features else place.facts
    return replace(place, memory=None, device=find_device(device), features=features, facts=facts)


def forget(run: str, dask_worker: Any) -> None:
    _PLACES.pop(run, None)
    remove_folder(_folder(run, dask_worker))


def _folder(run: str, worker: Any) -> Path:
    return Path(worker.local_directory) / f"semifl-{run}"


def scratch() -> Path:
    """A folder of the worker that a job runs on; it goes with the worker."""
    return Path(get_worker().local_directory)


def act(item: Packed, run: str, job: Job, name: str, common: Packed) -> tuple[str, Any]:
    """Do one job: ("result", what it gave), ("error", the parts of a JobFailed), or ("unknown", this worker)."""
    address = get_worker().address
    with _ONE_AT_A_TIME, threads(1):
        kept = _PLACES.get(run)
        if kept is None:
            return UNKNOWN, address
        kept.used = time.monotonic()
        try:
            if kept.message[0] != name:
                kept.message = (name, unpack(common))
            return "result", pack(job(kept.place, kept.message[1], unpack(item)))
        except Exception as error:
            failed = JobFailed.of(error)
            return "error", (f"{failed.reason} (on worker {address})", failed.trace, failed.errno, failed.kind)

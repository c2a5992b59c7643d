"""FLARE's processes as semifl starts them: `python -m semifl.deploy.flare.engine PROGRAM -m FOLDER …`.

PROGRAM is one of FLARE's own; it runs unchanged, behind the gate (`hardening.py`).
"""

from __future__ import annotations

import runpy
import sys
import tempfile
from pathlib import Path

from semifl.deploy.flare.gate import JOB
from semifl.deploy.flare.hardening import harden
from semifl.deploy.kit import read_kit
from semifl.regular import remove_folder

PROGRAMS = {
    "server_train": "nvflare.private.fed.app.server.server_train",
    "runner_process": "nvflare.private.fed.app.server.runner_process",
    "client_train": "nvflare.private.fed.app.client.client_train",
    "worker_process": "nvflare.private.fed.app.client.worker_process",
}


def main() -> None:
    program = sys.argv.pop(1)
    folder = Path(sys.argv[sys.argv.index("-m") + 1])
    if program in ("server_train", "client_train"):
        use_empty_temporary_folder(folder / "temporary")
    if program == "client_train":
        remove_old_jobs(folder)
    harden(read_kit(folder.parent).sites)
    runpy.run_module(PROGRAMS[program], run_name="__main__", alter_sys=True)


def remove_old_jobs(folder: Path) -> None:
    """Remove the folders of a site's earlier jobs, which none goes on with: FLARE keeps every one that was deployed."""
    for path in folder.iterdir():
        if JOB.fullmatch(path.name):
            remove_folder(path)


def use_empty_temporary_folder(folder: Path) -> None:
    """Let this process keep temporary files in `folder`, without those of an engine that was killed.

    Only this process: its jobs begin while it runs, and make sockets whose paths must be short.
    """
    remove_folder(folder)
    folder.mkdir(mode=0o700)
    tempfile.tempdir = str(folder)


if __name__ == "__main__":
    main()

"""FLARE's processes as semifl starts them: `python -m semifl.deploy.flare.engine PROGRAM -m FOLDER …`.

PROGRAM is one of FLARE's own; it runs unchanged, behind the gate (`hardening.py`).
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from semifl.deploy.flare.hardening import harden
from semifl.deploy.kit import read_kit

PROGRAMS = {
    "server_train": "nvflare.private.fed.app.server.server_train",
    "runner_process": "nvflare.private.fed.app.server.runner_process",
    "client_train": "nvflare.private.fed.app.client.client_train",
    "worker_process": "nvflare.private.fed.app.client.worker_process",
}


def main() -> None:
    program = PROGRAMS[sys.argv.pop(1)]
    folder = Path(sys.argv[sys.argv.index("-m") + 1])
    harden(read_kit(folder.parent).sites)
    runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()

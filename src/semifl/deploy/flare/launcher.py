"""Jobs in processes of their own, started behind the gate like the engine that starts them."""

from __future__ import annotations

from typing import Any

from nvflare.app_common.job_launcher.client_process_launcher import ClientProcessJobLauncher
from nvflare.app_common.job_launcher.server_process_launcher import ServerProcessJobLauncher

from semifl.deploy.flare.engine import PROGRAMS


class HubJobLauncher(ServerProcessJobLauncher):  # type: ignore[misc]  # FLARE has no types
    def get_command(self, job_meta: Any, fl_ctx: Any) -> str:
        return _behind_gate(super().get_command(job_meta, fl_ctx), "runner_process")


class SiteJobLauncher(ClientProcessJobLauncher):  # type: ignore[misc]
    def get_command(self, job_meta: Any, fl_ctx: Any) -> str:
        return _behind_gate(super().get_command(job_meta, fl_ctx), "worker_process")


def _behind_gate(command: str, program: str) -> str:
    words = f"-m {PROGRAMS[program]} "
    if command.count(words) != 1:  # never without the gate
        raise RuntimeError(f"FLARE would start a job in a way that semifl does not know: {command}")
    return command.replace(words, f"-m semifl.deploy.flare.engine {program} ")

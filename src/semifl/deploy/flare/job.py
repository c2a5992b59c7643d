"""A run as a FLARE job: a folder of four small JSON files, and no code."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from semifl.toml import Table

POLL = 0.1  # seconds between two questions of an idle site: what most of a short round's overhead comes from
SERVER, CLIENT = "app_hub", "app_site"


def job_name(run: str) -> str:
    return f"semifl-{run}"


def write_job(folder: Path, run: str, table: Table, sites: Sequence[str], min_sites: int) -> Path:
    """The job's folder, below `folder`."""
    job = folder / job_name(run)
    meta = {
        "name": job_name(run),
        "resource_spec": {},
        "deploy_map": {SERVER: ["server"], CLIENT: list(sites)},
        "min_clients": min_sites,
    }
    server = {
        "format_version": 2,
        "server": {"heart_beat_timeout": 600, "task_request_interval": POLL},
        "workflows": [
            {
                "id": "hub",
                "path": "semifl.deploy.flare.controller.HubController",
                "args": {"run": {"name": run, "table": table}},
            }
        ],
        "components": [],
    }
    client = {
        "format_version": 2,
        "executors": [
            {"tasks": ["packet"], "executor": {"path": "semifl.deploy.flare.executor.SiteExecutor", "args": {}}}
        ],
        "components": [],
    }
    _write(job / "meta.json", meta)
    _write(job / SERVER / "config" / "config_fed_server.json", server)
    _write(job / CLIENT / "config" / "config_fed_client.json", client)
    return job


def _write(path: Path, content: Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")

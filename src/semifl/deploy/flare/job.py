"""A run as a FLARE job: a folder of four small JSON files, and no code; packed ones are judged here, too."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from semifl.toml import Table

LARGEST_PACKED = 1 << 19  # Bytes of a packed job. The list of its members is read at once, so this bounds that, too.
MOST_MEMBERS = 32  # Files and folders in a job; ours have a dozen, signatures included.
LARGEST_MEMBER = 1 << 18  # Bytes of one unpacked file.
LARGEST_JOB = 1 << 20  # Bytes of all unpacked files.
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


def refuse_packed(packed: bytes | str) -> str:
    """Return why a job, as bytes or the path of a file, must not be unpacked; empty if it may be.

    `zipfile` never unpacks more of a member than the list of members declares.
    """
    size = len(packed) if isinstance(packed, bytes) else Path(packed).stat().st_size
    if size > LARGEST_PACKED:
        return f"a packed job of {size:,} bytes is larger than any of semifl's"
    try:
        with ZipFile(io.BytesIO(packed) if isinstance(packed, bytes) else packed) as archive:
            members = archive.infolist()
    except (BadZipFile, NotImplementedError, ValueError, OSError) as error:
        return f"a packed job cannot be read ({type(error).__name__})"
    sizes = [member.file_size for member in members]
    if len(members) > MOST_MEMBERS or sum(sizes) > LARGEST_JOB or max(sizes, default=0) > LARGEST_MEMBER:
        return f"a job of {len(members)} members and {sum(sizes):,} bytes is larger than any of semifl's"
    # Others, LZMA above all, let the archive say how much memory it takes to unpack it.
    if any(member.compress_type not in (ZIP_STORED, ZIP_DEFLATED) for member in members):
        return "a packed job is compressed in a way that semifl does not use"
    return ""


def _write(path: Path, content: Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1), encoding="utf-8")

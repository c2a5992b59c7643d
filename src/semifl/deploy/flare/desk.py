"""What an operator's machine takes from a hub: news of a run and its files, as much as there is room for.

By itself FLARE gathers whatever a hub sends, and writes a result's files wherever the names that the hub gives them
lead.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from nvflare.fuel.f3.streaming import file_downloader
from nvflare.fuel.hci.client import file_transfer
from nvflare.fuel.hci.client.api_status import APIStatus
from nvflare.fuel.hci.proto import ProtoKey

from semifl.deploy.flare.gate import JOB
from semifl.deploy.flare.hardening import harden
from semifl.deploy.flare.replacements import Replacement, replace_all

FILES = frozenset(["job.zip", "meta.json", "workspace.zip"])  # of a job's result

refusals: list[str] = []  # why results were not taken: FLARE makes a line of its log of it, and no error


@cache  # lines to the hub come and go, the process stays
def harden_desk() -> None:
    """Once in a process, before it opens its first line to a hub."""
    harden(())
    replace_all(
        [
            Replacement(
                *(file_transfer.FileTransferModule, "pull_binary_file", _in_its_folder),
                "a hub names the files of a result, and so the place where they land",
            ),
            Replacement(file_downloader._ChunkConsumer, "consume", _bounded, "FLARE takes whatever a hub sends"),
            Replacement(file_transfer, "unzip_all_from_file", _unpacked, "FLARE unpacks whatever a hub sends"),
        ]
    )


def _in_its_folder(pull: Callable[..., Any]) -> Callable[..., Any]:
    def pull_binary_file(self: Any, args: list[str], ctx: Any) -> Any:
        transaction, name = args[2], args[5]
        if JOB.fullmatch(transaction) and name in FILES:
            return pull(self, args, ctx)
        refusals.append(f"the hub gives a result's file the name {name[:100]!r}")
        return {ProtoKey.STATUS: APIStatus.ERROR_RUNTIME, ProtoKey.DETAILS: refusals[-1]}

    return pull_binary_file


def _bounded(consume: Callable[..., Any]) -> Callable[..., Any]:
    """Take a result of half of what was free on the disk at most."""

    def bounded(self: Any, ref_id: Any, state: Any, data: Any) -> Any:
        _refuse_beyond(shutil.disk_usage(self.location).free, self.total_bytes + len(data))
        return consume(self, ref_id, state, data)

    return bounded


def _unpacked(unzip: Callable[..., Any]) -> Callable[..., Any]:
    """Unpack a result to half of what is free on the disk at most."""

    def unpack(path: str, folder: str) -> None:
        with ZipFile(path) as packed:
            size = sum(info.file_size for info in packed.infolist())
        _refuse_beyond(shutil.disk_usage(Path(folder)).free // 2, size)
        unzip(path, folder)

    return unpack


def _refuse_beyond(room: int, size: int) -> None:
    if size > room:
        refusals.append(f"the run's result takes more of this machine's disk than there is room for ({size:,} bytes)")
        raise ValueError(refusals[-1])

"""What this machine has, and where it keeps what was fetched."""

from __future__ import annotations

import os
import resource
from pathlib import Path

CONTAINER = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory() -> int:
    """Bytes that this process could have at most: all of the machine's, or what a container or a limit leaves."""
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    return min([whole, *(each for each in (limit, *map(_number_in, CONTAINER)) if each > 0)])


def home(name: str) -> Path:
    """The folder that a data set, or all backbones, have if nobody names another."""
    if chosen := os.environ.get("SEMIFL_DATA"):
        return Path(chosen).expanduser().absolute() / name
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(cache).expanduser().absolute() / "semifl" / name


def _number_in(path: str) -> int:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):  # no such container, or "max"
        return 0

"""Which code a number comes from: digests of files, and the commit that semifl was installed from."""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable
from functools import cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def code_digest(paths: Iterable[Path], root: Path) -> str:
    """Return a short digest of files and of their names below `root`."""
    digest = hashlib.sha256()
    for path in paths:
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


@cache
def package_digest() -> str:
    """Return the digest of semifl's own files: two checkouts of one version may differ."""
    return code_digest(sorted(PACKAGE.rglob("*.py")), PACKAGE)


@cache
def package_commit() -> tuple[str, bool] | None:
    """Return the commit of the checkout that semifl runs from, and whether its code was modified since.

    None without git or a checkout; a repository that only happens to contain an installed semifl is none.
    """
    if not _git("ls-files", "__init__.py"):
        return None
    commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--", ".")
    return None if commit is None or changes is None else (commit, bool(changes))


def _git(*words: str) -> str | None:
    command = ["git", "-C", str(PACKAGE), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()

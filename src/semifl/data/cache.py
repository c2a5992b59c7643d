"""Decoded pictures kept on disk, so that a folder is decoded once and not at every start."""

from __future__ import annotations

import json
import warnings
import zlib
from pathlib import Path
from tempfile import TemporaryDirectory

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from semifl.data.pictures import Decoded


def recall(file: Path, fingerprint: str) -> Decoded | None:
    """What was kept under this fingerprint; None if there is nothing, something else, or something damaged."""
    try:
        with safe_open(file, framework="pt") as kept:
            facts = kept.metadata() or {}
            if facts.get("fingerprint") != fingerprint:
                return None
            images = kept.get_tensor("images")
        if _checksum(images) != facts["crc32"]:
            return None
        return Decoded(images, tuple(json.loads(facts["skipped"])), int(facts["bits"]))
    except (OSError, SafetensorError, KeyError, ValueError):
        return None


def keep(file: Path, fingerprint: str, decoded: Decoded) -> None:
    """Write all or nothing; a disk that cannot be written costs only time."""
    facts = {
        "fingerprint": fingerprint,
        "crc32": _checksum(decoded.images),
        "skipped": json.dumps(decoded.skipped),
        "bits": str(decoded.bits),
    }
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=file.parent) as unfinished:
            part = Path(unfinished, file.name)
            save_file({"images": decoded.images}, part, facts)
            part.replace(file)
    except (OSError, SafetensorError) as error:
        warnings.warn(f"{file.parent} cannot be written ({error}): pictures will be decoded again.", stacklevel=2)


def _checksum(images: Tensor) -> str:
    return str(zlib.crc32(images.numpy().data))

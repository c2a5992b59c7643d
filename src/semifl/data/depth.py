"""Greys of more than eight bits: how many bits their values really use, and their values as bytes.

A 12-bit picture in a 16-bit file has no value above 4095. Divided by 65535 it would be all but black.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from semifl.data.limits import refuse_too_many_pixels
from semifl.regular import open_regular

DEPTHS = (8, 10, 12, 14, 16)  # that machines make pictures with
FORMATS = ("PNG", "TIFF")  # of pictures that may have so many


def bits_of(brightest: float) -> int:
    """The least depth that has room for this value."""
    return next((bits for bits in DEPTHS if brightest < 2**bits), DEPTHS[-1])


def to_bytes(values: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """Values of so many bits as values from 0 to 255; with bits = 0 as many as these need by themselves."""
    white = 2 ** (bits or bits_of(float(values.max()))) - 1
    return np.asarray(np.rint(values.clip(0, white) * (255 / white)), dtype=np.uint8)


def is_deep(picture: Image.Image) -> bool:
    """Also where Pillow keeps sixteen bits in thirty-two."""
    return picture.mode.startswith("I")


def deepest(paths: Sequence[Path]) -> int:
    """The bits of the brightest pixel in all deep greys among these files; 0 if there are none."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = max(pool.map(_brightest, paths), default=-1.0)
    return bits_of(found) if found >= 0 else 0


def _brightest(path: Path) -> float:
    """−1 of a picture of eight bits, and of one that cannot be read: whoever decodes it will say so."""
    try:
        with open_regular(path) as file, Image.open(file, formats=FORMATS) as picture:
            refuse_too_many_pixels(*picture.size)
            return float(np.asarray(picture).max()) if is_deep(picture) else -1.0
    except Exception:
        return -1.0

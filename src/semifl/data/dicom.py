"""DICOM files: their pixels as a person at a viewer sees them, and nothing else. Needs the extra `dicom`.

Only the tags named here are ever read into memory, so that no patient's name, number or date can be copied anywhere.
"""

from __future__ import annotations

import os
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import IO, Any

import numpy as np
from PIL import Image

from semifl.data.limits import refuse_too_many_pixels
from semifl.errors import UserError
from semifl.regular import open_regular

SUFFIXES = frozenset({".dcm", ".dicom"})
PREAMBLE, MARK = 128, b"DICM"
LARGEST = 1 << 28  # pixels of all frames; beyond that a file is damage or malice
GREY = ("MONOCHROME1", "MONOCHROME2")
PIXELS = (
    *("Rows", "Columns", "SamplesPerPixel", "PhotometricInterpretation", "PlanarConfiguration", "NumberOfFrames"),
    *("BitsAllocated", "BitsStored", "HighBit", "PixelRepresentation", "PixelData"),
)
LOOK = (
    *("RescaleSlope", "RescaleIntercept", "ModalityLUTSequence"),
    *("WindowCenter", "WindowWidth", "VOILUTFunction", "VOILUTSequence"),
    *("RedPaletteColorLookupTableDescriptor", "RedPaletteColorLookupTableData"),
    *("GreenPaletteColorLookupTableDescriptor", "GreenPaletteColorLookupTableData"),
    *("BluePaletteColorLookupTableDescriptor", "BluePaletteColorLookupTableData"),
)


def is_dicom(path: str | Path, file: IO[bytes] | None = None) -> bool:
    """Return True if the name says so, or, without a suffix, as archives write them, the first bytes.

    `file` is the path opened, if it is open already; it is left at its beginning.

    Archives also name files by their UID, such as 1.2.840.10008.969.1: the digits after its last dot are no suffix.
    """
    suffix = os.path.splitext(path)[1].lower()  # noqa: PTH122  (a Path each is slow)
    if suffix and not suffix[1:].isdigit():
        return suffix in SUFFIXES
    try:
        with nullcontext(file) if file else open_regular(Path(path)) as opened:
            opened.seek(PREAMBLE)
            mark = opened.read(len(MARK))
            opened.seek(0)
            return mark == MARK
    except OSError:
        return False


def read_dicom(file: IO[bytes]) -> Image.Image:
    """Read the first frame, eight bits, gray or RGB: rescaled, windowed, and dark where the body is not."""
    data = _read(file, (*PIXELS, *LOOK))
    pixels = int(data.Rows) * int(data.Columns) * int(data.get("NumberOfFrames") or 1)
    if not 0 < pixels <= LARGEST:
        raise ValueError(f"it claims to hold {pixels:,} pixels")
    refuse_too_many_pixels(int(data.Columns), int(data.Rows))
    with warnings.catch_warnings():  # pydicom's remarks on sloppy headers are for whoever wrote the file
        warnings.simplefilter("ignore")
        frame = _first_frame(data)
        picture = _grey(data, frame) if data.PhotometricInterpretation in GREY else _colour(data, frame)
    return Image.fromarray(picture)


def describe(file: IO[bytes]) -> tuple[tuple[int, int], str]:
    """Return width and height, and the kind, by the header alone."""
    data = _read(file, PIXELS[:-1])
    return (int(data.Columns), int(data.Rows)), f"DICOM {str(data.PhotometricInterpretation).lower()}"


def _read(file: IO[bytes], tags: tuple[str, ...]) -> Any:
    try:
        from pydicom import dcmread
    except ImportError as error:
        raise UserError("DICOM pictures need an extra package: pip install 'semifl[dicom]'") from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return dcmread(file, specific_tags=list(tags), stop_before_pixels="PixelData" not in tags)


def _first_frame(data: Any) -> np.ndarray[Any, Any]:
    from pydicom.pixels.utils import pixel_array

    return np.asarray(pixel_array(data, index=0, raw=False))  # YBR becomes RGB


def _grey(data: Any, frame: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    from pydicom.pixels.processing import apply_modality_lut, apply_voi_lut

    values = apply_modality_lut(frame, data)
    black, white = _range(data)
    if "VOILUTSequence" in data or None not in (data.get("WindowCenter"), data.get("WindowWidth")):
        values = apply_voi_lut(values, data)
    else:  # a person sees small values dark, whichever way they were stored
        black, white = min(black, white), max(black, white)
    share = ((np.asarray(values, dtype=np.float64) - black) / (white - black or 1)).clip(0, 1)
    if data.PhotometricInterpretation == "MONOCHROME1":  # small values are meant to be white
        share = 1 - share
    return np.asarray(np.rint(255 * share), dtype=np.uint8)


def _range(data: Any) -> tuple[float, float]:
    """What becomes black and white: all that the stored bits can say, rescaled; or all that a table's entries can.

    pydicom spreads a window over just that range, and where the slope is negative from its high end to its low one.
    """
    for table in ("VOILUTSequence", "ModalityLUTSequence"):
        if data.get(table):
            return 0.0, float(2 ** int(data.get(table)[0].LUTDescriptor[2]) - 1)
    bits = int(data.BitsStored)
    low = -(2 ** (bits - 1)) if int(data.get("PixelRepresentation") or 0) else 0
    slope, intercept = data.get("RescaleSlope"), data.get("RescaleIntercept")
    if slope is None or intercept is None:  # one alone is no rescaling, to pydicom either
        slope, intercept = 1, 0
    return float(slope) * low + float(intercept), float(slope) * (low + 2**bits - 1) + float(intercept)


def _colour(data: Any, frame: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    from pydicom.pixels.processing import apply_color_lut

    if data.PhotometricInterpretation == "PALETTE COLOR":
        frame = apply_color_lut(frame, data)
        bits = int(data.RedPaletteColorLookupTableDescriptor[2])
    else:
        bits = int(data.BitsStored)
    if frame.ndim != 3 or frame.shape[2] != 3:
        raise ValueError(f"its colours are {data.PhotometricInterpretation}, which is not known here")
    return np.asarray(np.rint(frame * (255 / (2**bits - 1))).clip(0, 255), dtype=np.uint8)

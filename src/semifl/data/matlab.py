"""Numeric arrays from MATLAB level-5 files. Small and strict, because general readers can crash on damaged files."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

MATRIX, COMPRESSED = 14, 15
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}
LARGEST = 2**31  # bytes that one variable may unpack to; SVHN's largest has 225 million


class Element(NamedTuple):
    kind: int
    data: memoryview


def variables(file: bytes) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """The numeric variables of a file, by name; raises ValueError where the file is not sound."""
    if len(file) < 128 or file[124:128] != b"\x00\x01IM":
        raise ValueError("it has no little-endian MATLAB 5 header")
    for element in _elements(memoryview(file)[128:]):
        if element.kind == COMPRESSED:
            (element,) = _elements(_unpack(element.data))
        if element.kind == MATRIX:
            array = _array(element.data)
            if array is not None:
                yield array


def _elements(data: memoryview) -> Iterator[Element]:
    """A sequence of tagged elements; small ones hold their data in the second half of the tag."""
    at = 0
    while at < len(data):
        if len(data) - at < 8:
            raise ValueError("it ends inside a tag")
        kind, length = struct.unpack_from("<II", data, at)
        start = at + 8
        if kind >> 16:
            kind, length, start = kind & 0xFFFF, kind >> 16, at + 4
        if start + length > len(data) or (start == at + 4 and length > 4):
            raise ValueError("an element is longer than the file")
        yield Element(kind, data[start : start + length])
        end = max(start + length, at + 8)
        at = end if kind == COMPRESSED else -(-end // 8) * 8


def _unpack(data: memoryview) -> memoryview:
    stream = zlib.decompressobj()
    content = stream.decompress(data, LARGEST)
    if not stream.eof:
        raise ValueError("a compressed element is cut off or too large")
    return memoryview(content)


def _array(data: memoryview) -> tuple[str, npt.NDArray[Any]] | None:
    """Name and values of a real numeric matrix; None for anything else."""
    flags, dims, name, *parts = _elements(data)
    if len(flags.data) < 4 or flags.data[0] not in CLASSES:
        return None
    if len(parts) != 1 or parts[0].kind not in STORED or dims.kind != 5 or len(dims.data) % 4:
        raise ValueError("a matrix is not made of real numbers")
    shape = struct.unpack(f"<{len(dims.data) // 4}i", dims.data)
    values = np.frombuffer(parts[0].data, "<" + STORED[parts[0].kind])
    if min(shape, default=0) < 0 or math.prod(shape) != len(values):
        raise ValueError("a matrix has another size than it announces")
    return bytes(name.data).decode("latin1"), values.astype(CLASSES[flags.data[0]]).reshape(shape, order="F")

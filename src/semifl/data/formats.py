"""Readers for the files in which data sets are published: Python pickles, IDX and MATLAB."""

from __future__ import annotations

import gzip
import io
import math
import pickle
import struct
import zlib
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from semifl.data.matlab import variables
from semifl.errors import UserError

Bytes = npt.NDArray[np.uint8]

IDX_UBYTE = 0x08  # the element type in the third byte of an IDX file


def _latin1(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes into a protocol-2 pickle; any other codec is refused by failing."""
    return text.encode({"latin1": "latin1"}[encoding])


# Asking an array for its own recipe gives numpy's `_reconstruct` whichever private module holds it in this version.
_RECONSTRUCT = np.empty(0).__reduce__()[0]

_HARMLESS: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("_codecs", "encode"): _latin1,
}


class _RefusedError(Exception):
    """A pickle asked for something that plain data do not need."""


class _PlainData(pickle._Unpickler):
    """Builds containers, strings, numbers and arrays, and nothing else: a pickle can otherwise run any program.

    The one written in Python, because the fast one takes gigabytes for a few damaged bytes; for the same reason it
    knows no byte arrays, which would be made in their announced length before anything is read.
    """

    dispatch: ClassVar[dict[int, Any]] = {
        code: load for code, load in pickle._Unpickler.dispatch.items() if code != pickle.BYTEARRAY8[0]
    }

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _HARMLESS[module, name]
        except KeyError:
            raise _RefusedError(f"{module}.{name}") from None


def unpickle(data: bytes, name: Path | str) -> Any:
    """The plain data in a pickle; Python 2's strings come as bytes."""
    try:
        return _PlainData(io.BytesIO(data), encoding="bytes").load()
    except _RefusedError as refused:
        raise UserError(
            f"{name} was refused because it asks for {refused}, which plain data do not need: fetch the file again."
        ) from None
    except Exception as error:  # a damaged pickle can fail in any way
        raise UserError(f"{name} is not a readable pickle ({error}): fetch the file again.") from error


def read_idx(path: Path) -> Bytes:
    """The array in an IDX file of unsigned bytes, plain or compressed (.gz)."""
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read ({error}): fetch the file again.") from error
    if len(data) < 4 or data[:3] != bytes([0, 0, IDX_UBYTE]):
        raise UserError(f"{path} is not an IDX file of unsigned bytes (its first bytes are {data[:4].hex(' ')!r}).")
    header = 4 + 4 * data[3]
    if len(data) < header:
        raise UserError(f"{path} ends inside its header: fetch the file again.")
    shape = struct.unpack(f">{data[3]}I", data[4:header])
    if len(data) - header != math.prod(shape):
        dims = "×".join(map(str, shape))
        raise UserError(
            f"{path} announces {dims} values and holds {len(data) - header:,} bytes of them: fetch the file again."
        )
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def read_mat(path: Path, *names: str) -> tuple[npt.NDArray[Any], ...]:
    """The named variables of a MATLAB file."""
    try:
        found = dict(variables(path.read_bytes()))
    except (OSError, ValueError, zlib.error, struct.error) as error:
        raise UserError(f"{path} is not a readable MATLAB file ({error}): fetch the file again.") from error
    if absent := [name for name in names if name not in found]:
        raise UserError(f"{path} has no variable {absent[0]}: fetch the file again.")
    return tuple(found[name] for name in names)

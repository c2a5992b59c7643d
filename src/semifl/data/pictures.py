"""Pictures as people have them, of any size and kind, made into square uint8 tensors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import BinaryIO, NamedTuple, NoReturn

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from semifl.data.depth import is_deep, to_bytes
from semifl.data.dicom import is_dicom, read_dicom
from semifl.data.limits import refuse_too_many_pixels
from semifl.data.progress import Progress
from semifl.errors import UserError
from semifl.regular import open_regular
from semifl.words import shown

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF")
SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".webp", ".gif", ".bmp", ".dib", ".tif", ".tiff"})
LARGEST_SIDE = 1024  # pixels of a square picture; more is beyond any model here
BLOCK = 64  # pictures per task of a decoding thread

ORIENTATION = 0x0112  # the EXIF tag, and what undoes each of its values
UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class UnreadableError(UserError):
    """A file that is no picture, or not a whole one."""


def decode(source: Path | BinaryIO, size: int, channels: int | None = None, bits: int = 0) -> Tensor:
    """The picture upright, its shorter side resized to `size`, cropped to the centre: uint8 [channels, size, size].

    Without `channels` a picture gets one channel if it is grey and three otherwise, however the file stores it.
    What is transparent becomes white; of an animation the first frame is taken. `bits` are those of greys with more
    than eight: white is what they can say at most; 0 takes as many as each picture needs.
    """
    try:
        with open_regular(source) if isinstance(source, Path) else nullcontext(source) as file:
            if isinstance(source, Path) and is_dicom(source, file):
                square = centre_square(as_seen(read_dicom(file), channels == 1, bits), size)
            else:
                with Image.open(file, formats=FORMATS) as picture:
                    refuse_too_many_pixels(*picture.size)
                    picture.draft(None, (2 * size, 2 * size))  # a big JPEG need not be decoded in full
                    picture.load()
                    square = centre_square(as_seen(picture, channels == 1, bits), size)
    except UserError:  # something is missing here, and not in the file
        raise
    except Exception as error:  # Pillow's decoders fail in many ways, and so do permissions and decompression bombs
        name = source if isinstance(source, Path) else getattr(source, "name", "the file")
        raise unreadable(str(name), error) from error
    pixels = np.atleast_3d(np.asarray(square))
    if channels == 3 and pixels.shape[2] == 1:
        pixels = pixels.repeat(3, axis=2)
    elif channels is None and (pixels == pixels[:, :, :1]).all():
        pixels = pixels[:, :, :1]
    return torch.from_numpy(pixels.transpose(2, 0, 1).copy())


def pictures_below(folder: Path) -> list[Path]:
    """Every picture that is not hidden, also below links, in an order that does not depend on the file system."""
    found, seen = list[str](), set[tuple[int, int]]()
    for at, folders, files in os.walk(folder, onerror=refuse, followlinks=True):
        place = _inode(at)
        if place in seen:  # a link that leads back, or a second one to the same folder
            folders.clear()
            continue
        seen.add(place)
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        paths = (os.path.join(at, name) for name in files if not name.startswith("."))  # noqa: PTH118  (a Path each is slow)
        found += [path for path in paths if is_picture(path)]
    return [Path(name) for name in sorted(found, key=os.fsencode)]


def _inode(folder: str) -> tuple[int, int]:
    try:
        state = os.stat(folder)  # noqa: PTH116
    except OSError as error:
        refuse(error)
    return state.st_dev, state.st_ino


def refuse(error: OSError) -> NoReturn:
    """A folder that cannot be listed."""
    raise UserError(f"{error.filename} cannot be read ({error.strerror}): check its permissions.") from error


class Decoded(NamedTuple):
    """Many pictures, and the positions of those that could not be read and were left out."""

    images: Tensor  # uint8 [n, channels, size, size]
    skipped: tuple[int, ...]
    bits: int = 0  # of greys with more than eight; 0 if there were none


def decode_all(
    paths: Sequence[Path],
    size: int,
    channels: int | None,
    bits: int = 0,
    *,
    progress: Progress | None = None,
    into: Tensor | None = None,
) -> Decoded:
    """Decode in parallel, in order; without `channels` there is one if every picture is grey, and three otherwise.

    `into` is where to, if not into new memory; pictures that cannot be read leave no gap there.
    """
    images = torch.zeros(len(paths), channels or 3, size, size, dtype=torch.uint8) if into is None else into

    def decode_block(start: int) -> tuple[bool, list[int]]:
        coloured, failures = False, []
        for position in range(start, min(start + BLOCK, len(paths))):
            try:
                picture = decode(paths[position], size, channels, bits)
            except UnreadableError:
                failures.append(position)
            else:
                coloured |= len(picture) == 3
                images[position] = picture  # a single channel fills all three
        return coloured, failures

    coloured, skipped = channels is not None, list[int]()
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        blocks = [pool.submit(decode_block, start) for start in range(0, len(paths), BLOCK)]
        for done, block in enumerate(blocks, start=1):
            in_colour, failures = block.result()
            coloured |= in_colour
            skipped += failures
            if progress:
                progress(min(done * BLOCK, len(paths)), len(paths))
    finally:  # also when a person loses patience: nobody waits for pictures that nobody wants
        pool.shutdown(cancel_futures=True)
    if skipped:
        readable = torch.ones(len(paths), dtype=torch.bool)
        readable[skipped] = False
        images = images[readable] if into is None else _closed_up(into, readable.nonzero().flatten().tolist())
    return Decoded(images if coloured else images[:, :1].clone(), tuple(skipped), bits)


def _closed_up(images: Tensor, wanted: list[int]) -> Tensor:
    """The wanted ones side by side, moved where they lie."""
    for place, position in enumerate(wanted):
        if place != position:
            images[place] = images[position]
    return images[: len(wanted)]


def is_picture(path: str) -> bool:
    """By its suffix, or as DICOM; what is hidden is none, as the "._name.jpg" that macOS leaves on foreign disks."""
    return os.path.splitext(path)[1].lower() in SUFFIXES or is_dicom(path)  # noqa: PTH122


def as_seen(picture: Image.Image, grey: bool = False, bits: int = 0) -> Image.Image:
    """What a person at a viewer sees, in eight bits, grey or RGB: upright, in its true colours, on a white ground."""
    return _plain(upright(picture), grey, bits)


def upright(picture: Image.Image) -> Image.Image:
    """Undo what the camera's orientation tag says."""
    try:
        turn = UPRIGHT.get(picture.getexif().get(ORIENTATION, 1))
    except Exception:  # a damaged tag says nothing about the pixels
        turn = None
    return picture if turn is None else picture.transpose(turn)


def _plain(picture: Image.Image, grey: bool, bits: int) -> Image.Image:
    """Eight bits, grey or RGB, nothing transparent."""
    if picture.mode == "LAB":  # from which there is no way to grey but by red, green and blue
        picture = picture.convert("RGB")
    if is_deep(picture):
        picture = Image.fromarray(to_bytes(np.asarray(picture), bits))
    elif picture.mode == "F":
        raise ValueError("its pixels are floating-point numbers without a scale")
    elif picture.has_transparency_data:
        picture = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)
    return picture.convert("L" if grey or picture.mode in ("1", "L") else "RGB")


def centre_square(picture: Image.Image, size: int) -> Image.Image:
    """The centre of the picture, `size` pixels wide and high."""
    width, height = picture.size
    side = min(width, height)
    left, top = (width - side) // 2, (height - side) // 2
    return picture.resize((size, size), Image.Resampling.LANCZOS, box=(left, top, left + side, top + side))


def unreadable(name: str, error: Exception) -> UnreadableError:
    return UnreadableError(f"{shown(name)} cannot be read as a picture ({_reason(error)})")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, UnidentifiedImageError):
        return "its content is not that of a PNG, JPEG, WEBP, GIF, BMP, TIFF or DICOM file"
    return str(error) or type(error).__name__

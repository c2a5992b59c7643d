"""Pictures and labels that a program hands over as tensors or arrays, made into what everybody here works with."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from semifl.data.dataset import Dataset
from semifl.data.depth import is_deep
from semifl.data.pictures import as_seen, centre_square, unreadable, upright
from semifl.errors import UserError

CHANNELS = (1, 3)
SHAPES = "[n, channels, height, width], [n, height, width, channels] or, for grey ones, [n, height, width]"


@dataclass(frozen=True)
class InMemory:
    """Pictures that a Python program handed over: a run directory keeps their fingerprint, not the pictures."""

    fingerprint: str = ""
    held: Dataset | None = field(default=None, repr=False)

    def load(self) -> Dataset:
        if self.held is None:
            raise UserError(
                "the pictures of this run were handed over by a Python program, so only Python can go on with it: "
                "call semifl.train with the same things and the same out"
            )
        return self.held


def fingerprint(data: Dataset) -> str:
    """Of all that makes up the data."""
    digest = hashlib.blake2b(digest_size=16)
    for each in fields(data):
        if each.name.endswith("names"):  # which say where the pictures lie, and these are hashed themselves
            continue
        value = getattr(data, each.name)
        if isinstance(value, Tensor):
            digest.update(f"{each.name} {list(value.shape)}".encode())
            digest.update(value.contiguous().numpy().data)
        else:
            digest.update(repr(value).encode())
    return digest.hexdigest()


def as_pictures(given: Any, what: str, size: str = "") -> list[Tensor]:
    """uint8 [n, 1 or 3, height, width] each: one tensor, or a list of single pictures if they were given as such.

    Floats must lie between 0 and 1 and become whole numbers from 0 to 255 by rounding. Arrays must be square where the
    name of the setting that asks for a `size` is given: without one, a crop would be nobody's wish.
    """
    if isinstance(given, Image.Image):
        return [_picture(given, what)]
    if isinstance(given, (list, tuple)):
        if not given:
            raise UserError(f"{what} holds no pictures")
        return [_picture(picture, f"{what}[{number}]", size) for number, picture in enumerate(given)]
    return [_refuse_oblong(_pictures(_array(given, what), what), what, size)]


def as_labels(given: Any, count: int, what: str) -> Tensor:
    """int64 [count]."""
    labels = _array(given, what)
    if labels.dim() == 2 and labels.shape[1] == 1:  # a column, as spreadsheets and many archives have them
        labels = labels[:, 0]
    if labels.dim() != 1 or len(labels) != count:
        raise UserError(f"{what} must be one label for each of the {count} pictures, not {list(labels.shape)}")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise UserError(f"{what} must be whole numbers from 0 on, one per class, not {labels.dtype}")
    labels = labels.long()
    if len(labels) and int(labels.min()) < 0:
        raise UserError(f"{what} must be whole numbers from 0 on, but one is {int(labels.min())}")
    return labels


def to_square(pictures: Iterable[Tensor], size: int, channels: int) -> Tensor:
    """One tensor of square pictures: each cropped to its centre and resized as a file would be."""
    return torch.cat([_recoloured(_squared(each, size), channels) for each in pictures])


def channels_of(parts: Iterable[Sequence[Tensor]]) -> int:
    """One if every picture is grey, else three."""
    return max(picture.shape[1] for part in parts for picture in part)


def _array(given: Any, what: str) -> Tensor:
    if isinstance(given, Tensor):
        return given.detach().cpu()
    try:
        array = np.asarray(given)
    except ValueError as error:  # rows that are not of one length
        raise UserError(f"{what} must be a tensor or an array of numbers, but its parts differ in length") from error
    if array.dtype.kind not in "buif":
        kind = f" of {array.dtype}" if array.ndim else ""
        raise UserError(f"{what} must be a tensor or an array of numbers, not {type(given).__name__}{kind}")
    return torch.from_numpy(np.array(array.astype(array.dtype.newbyteorder("="), copy=False), order="C"))


def _picture(given: Any, what: str, size: str = "") -> Tensor:
    if isinstance(given, Image.Image):  # a photograph, which may be cropped as a file of one is
        return _pictures(_array(_seen(given, what), what)[None], what)
    return _refuse_oblong(_pictures(_array(given, what)[None], what), what, size)


def _refuse_oblong(images: Tensor, what: str, size: str) -> Tensor:
    height, width = images.shape[2:]
    if size and height != width:
        raise UserError(
            f"{what} is {height} × {width}, not square: with {size} = {min(height, width)} the middle of each is cut "
            "out, or pad the arrays to squares yourself"
        )
    return images


def _seen(picture: Image.Image, what: str) -> np.ndarray[Any, Any]:
    """[channels, height, width] as of a file; numbers without a scale stay what they are, as those of an array do."""
    try:
        if is_deep(picture) or picture.mode == "F":
            return np.asarray(upright(picture))[None]
        pixels = np.atleast_3d(np.asarray(as_seen(picture)))
    except Exception as error:  # it may lie in a file that is damaged
        raise unreadable(what, error) from error
    # RGB is left to who made it, or nobody could hand over greys for a network that takes three channels.
    is_grey = picture.mode != "RGB" and bool((pixels == pixels[:, :, :1]).all())
    return pixels[:, :, : 1 if is_grey else None].transpose(2, 0, 1)


def _pictures(images: Tensor, what: str) -> Tensor:
    if images.dim() == 3:
        images = images[:, None]
    if images.dim() == 4 and images.shape[1] not in CHANNELS and images.shape[3] in CHANNELS:
        images = images.permute(0, 3, 1, 2)
    if images.dim() != 4 or images.shape[1] not in CHANNELS:
        hint = " (drop the fourth channel, transparency)" if 4 in images.shape[1:] else ""
        raise UserError(f"{what} has the shape {list(images.shape)}: pictures come as {SHAPES}{hint}")
    if not all(images.shape):
        raise UserError(f"{what} holds no pictures")
    return _bytes(images, what).contiguous()


def _bytes(images: Tensor, what: str) -> Tensor:
    if images.dtype == torch.uint8:
        return images
    if images.dtype == torch.bool:
        return images.to(torch.uint8) * 255
    images = images if images.is_floating_point() else images.long()  # torch cannot compare every kind of integer
    low, high = float(images.min()), float(images.max())
    if images.is_floating_point():
        if not 0 <= low <= high <= 1:
            raise UserError(
                f"{what} holds floats from {low:.4g} to {high:.4g}: "
                "pass them as they are before any normalisation, as floats between 0 and 1 or as uint8"
            )
        return (images * 255).round().to(torch.uint8)
    if not 0 <= low <= high <= 255:
        raise UserError(f"{what} holds whole numbers from {low:.0f} to {high:.0f}: pictures need 0 to 255, as uint8")
    return images.to(torch.uint8)


def _squared(images: Tensor, size: int) -> Tensor:
    height, width = images.shape[2:]
    if height == width == size:
        return images
    cut = []
    for picture in images:
        pixels = picture[0].numpy() if len(picture) == 1 else picture.permute(1, 2, 0).contiguous().numpy()
        small = np.atleast_3d(np.asarray(centre_square(Image.fromarray(pixels), size)))
        cut.append(torch.from_numpy(small.transpose(2, 0, 1).copy()))
    return torch.stack(cut)


def _recoloured(images: Tensor, channels: int) -> Tensor:
    if images.shape[1] == 3 and channels == 1:  # as Pillow turns colour into grey (ITU-R 601)
        red, green, blue = images.int().unbind(dim=1)
        return ((19595 * red + 38470 * green + 7471 * blue + 32768) >> 16).to(torch.uint8)[:, None]
    return images.expand(-1, channels, -1, -1) if images.shape[1] < channels else images

"""Pillow's picture operations on whole batches, bit for bit.

`apply` gives every picture of a batch its own operation at its own magnitude. Operations come in three kinds, so
that a batch costs a few passes over memory instead of one call per picture:

- TABLES map each pixel value by itself: a look-up table per picture and channel, all applied by one gather;
- MATRICES move pixels: an affine map per picture, all applied by one nearest-neighbour gather;
- FILTERS look at channels or neighbours, or are a few bit operations, and work on the pictures that drew them.

Pillow's rules are its own: enhancements blend in float32 and truncate, nearest affine maps run in 16.16 fixed
point, and equalize steps in whole pixels. They are followed here because published numbers were made with them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

Operation = Callable[[Tensor, Tensor], Tensor]  # (uint8 pictures, float64 magnitude per picture) -> one row per picture

GREY = 127
PICKED_AT_ONCE = 2**16  # positions
LEVELS = torch.arange(256.0)  # of a pixel


def apply(images: Tensor, operation: Tensor, magnitude: Tensor) -> Tensor:
    """Picture i after OPERATIONS[operation[i]] at magnitude[i] (float64; ignored by operations that have none)."""
    # Sorted by operation the pictures of one kind are a slice; one index puts them all back in place.
    order = operation.argsort(stable=True)
    counts = operation.bincount(minlength=len(OPERATIONS)).tolist()
    images, magnitude = images.index_select(0, order), magnitude.index_select(0, order)

    parts = zip(OPERATIONS, torch.split(images, counts), torch.split(magnitude, counts), strict=True)
    drawn = [(name, pictures, amount) for name, pictures, amount in parts if len(pictures)]
    tables = [TABLES[name](pictures, amount) for name, pictures, amount in drawn if name in TABLES]
    matrices = [MATRICES[name](pictures, amount) for name, pictures, amount in drawn if name in MATRICES]
    filtered = [FILTERS[name](pictures, amount) for name, pictures, amount in drawn if name in FILTERS]

    mapped, moved = sum(map(len, tables)), sum(map(len, matrices))
    done = [_look_up(images[:mapped], tables), _move(images[mapped : mapped + moved], matrices), *filtered]
    return torch.cat(done).index_select(0, order.argsort())


def cutout(images: Tensor, top: Tensor, left: Tensor, side: int) -> Tensor:
    """Each picture with a grey square whose corner may lie anywhere; what lies outside the picture is not painted."""
    n, size = len(images), images.shape[-1]
    rows, columns = (_between(start, start + side, size) for start in (top, left))
    # A row of the square is the picture's pattern of columns, any other row is blank: copying rows beats masked_fill.
    patterns = torch.cat([columns.to(torch.uint8), torch.zeros(1, size, dtype=torch.uint8)])
    pattern = torch.arange(n)[:, None].where(rows, n)
    square = patterns.index_select(0, pattern.flatten()).view(n, 1, size, size)
    return (images * (1 - square)).add_(square * GREY)


def pick(values: Tensor, position: Tensor) -> Tensor:
    """values[i, c, position[i, c]] of values [n, c, any] and positions [n, c or 1, k] of any integer type."""
    n, channels, k = len(values), values.shape[1], position.shape[2]
    picked = torch.empty(n, channels, k, dtype=values.dtype)
    # gather wants int64, eight times as large as a picture; converted a few at a time they never leave the cache.
    few = max(1, PICKED_AT_ONCE // position[0].numel()) if n else 1
    for some, where, out in zip(*(torch.split(t, few) for t in (values, position, picked)), strict=True):
        torch.gather(some, 2, where.long().expand(-1, channels, -1), out=out)
    return picked


def _between(start: Tensor, end: Tensor, size: int) -> Tensor:
    place = torch.arange(size)
    return (place >= start[:, None]) & (place < end[:, None])


def _look_up(images: Tensor, tables: list[Tensor]) -> Tensor:
    """Replace each pixel value by its entry in the table of its picture and channel, [n, c or 1, 256]."""
    if not tables:
        return images
    channels = images.shape[1]
    table = torch.cat([some.expand(-1, channels, -1) for some in tables])
    return pick(table, images.flatten(2)).view_as(images)


def _move(images: Tensor, matrices: list[Tensor]) -> Tensor:
    """Image.transform: fetch the pixel at (x, y) from (ax + by + c, dx + ey + f), black where that is outside."""
    if not matrices:
        return images
    size = images.shape[-1]
    a, b, c, d, e, f = torch.cat(matrices).unbind(1)
    # 16.16 fixed point, from the middle of the first pixel; the one added is the frame below.
    start_x, start_y = c + a * 0.5 + b * 0.5 + 1, f + d * 0.5 + e * 0.5 + 1
    fixed = torch.stack([a, b, start_x, d, e, start_y]).mul_(65536).add_(0.5).floor_().int()
    a, b, start_x, d, e, start_y = fixed[:, :, None, None]

    # A black frame of one pixel receives all that is outside, and costs less than comparing.
    framed = functional.pad(images, (1, 1, 1, 1)).flatten(2)
    place = torch.arange(size, dtype=torch.int32)
    x, y = place[None, None, :], place[None, :, None]
    source_x = (start_x + b * y + a * x).bitwise_right_shift_(16).clamp_(0, size + 1)
    source_y = (start_y + e * y + d * x).bitwise_right_shift_(16).clamp_(0, size + 1)
    return pick(framed, source_y.mul_(size + 2).add_(source_x).flatten(1)[:, None]).view_as(images)


def _blend(plain: Tensor | float, values: Tensor, factor: Tensor) -> Tensor:
    """ImagingBlend: from `plain` (factor 0) through `values` (factor 1) and beyond, in float32, truncated."""
    # A multiplication and an addition, each rounded: a fused one would differ from Pillow in the last bit.
    blended = (values - plain).mul_(factor.float().view(-1, *[1] * (values.dim() - 1))).add_(plain)
    return blended.clamp_(0, 255).to(torch.uint8)


def _luma(values: Tensor) -> Tensor:
    """Pillow's conversion to "L" of float32 pictures, [n, 1, s, s]."""
    if values.shape[1] == 1:
        return values
    red, green, blue = (values[:, channel : channel + 1] for channel in range(3))
    total = red * 19595 + green * 38470 + blue * 7471 + 32768  # whole numbers below 2**24: exact
    return total.div_(65536).floor_()


def _autocontrast(images: Tensor, _: Tensor) -> Tensor:
    low, high = (bound[..., None].double() for bound in (images.amin(dim=(2, 3)), images.amax(dim=(2, 3))))
    scale = torch.full_like(low, 255) / (high - low)  # a number over a tensor would round twice
    table = (LEVELS * scale + -low * scale).clamp_(0, 255)
    return table.where(high > low, LEVELS).to(torch.uint8)  # a constant channel stays as it is


def _brightness(_: Tensor, factor: Tensor) -> Tensor:
    return _blend(0, LEVELS.expand(len(factor), 1, 256), factor)


def _contrast(images: Tensor, factor: Tensor) -> Tensor:
    mean = (_luma(images.float()).sum(dim=(1, 2, 3), dtype=torch.float64) / images[0, 0].numel() + 0.5).floor().float()
    return _blend(mean[:, None, None], LEVELS.expand(len(factor), 1, 256), factor)


def _equalize(images: Tensor, _: Tensor) -> Tensor:
    # Counts in float32 are exact below 2**24 pixels, so are floors of their quotients, and integers divide slowly.
    pixels = images.flatten(2).long()
    histogram = torch.zeros(*images.shape[:2], 256).scatter_add_(2, pixels, torch.ones(1).expand_as(pixels))
    brightest = histogram.gather(2, images.amax(dim=(2, 3))[..., None].long())
    step = ((pixels.shape[2] - brightest) / 255).floor_()
    below = histogram.cumsum(2).sub_(histogram)
    table = below.add_((step / 2).floor_()).div_(step).floor_().clamp_(max=255)
    return table.where(step > 0, LEVELS).to(torch.uint8)


def _rotate(images: Tensor, degrees: Tensor) -> Tensor:
    """Counter-clockwise about the middle of the picture."""
    middle = images.shape[-1] / 2
    radians = degrees * (-math.pi / 180)
    cos, sin = radians.cos(), radians.sin()
    return torch.stack([cos, sin, middle - (cos + sin) * middle, -sin, cos, middle - (cos - sin) * middle], 1)


def _shear_x(_: Tensor, slope: Tensor) -> Tensor:
    return _matrix_with(slope, at=1)


def _shear_y(_: Tensor, slope: Tensor) -> Tensor:
    return _matrix_with(slope, at=3)


def _translate_x(images: Tensor, share: Tensor) -> Tensor:
    """By a share of the side."""
    # Pillow moves by fractions without fixed point; the nearest whole pixel is the same and exact in both.
    return _matrix_with((share * images.shape[-1] + 0.5).floor(), at=2)


def _translate_y(images: Tensor, share: Tensor) -> Tensor:
    return _matrix_with((share * images.shape[-1] + 0.5).floor(), at=5)


def _matrix_with(entry: Tensor, at: int) -> Tensor:
    """The identity (1, 0, 0, 0, 1, 0) for each picture, but for one entry."""
    matrix = torch.zeros(len(entry), 6, dtype=torch.float64)
    matrix[:, ::4] = 1
    matrix[:, at] = entry
    return matrix


def _identity(images: Tensor, _: Tensor) -> Tensor:
    return images


def _invert(images: Tensor, _: Tensor) -> Tensor:
    return 255 - images


def _posterize(images: Tensor, bits: Tensor) -> Tensor:
    """Keep floor(bits) bits, at most 8."""
    lost = 8 - bits.floor().clamp(max=8).int()
    return images & (255 >> lost << lost).to(torch.uint8)[:, None, None, None]


def _solarize(images: Tensor, threshold: Tensor) -> Tensor:
    """Invert from the threshold on."""
    lowest = threshold.ceil().short()[:, None, None, None]  # 256 inverts nothing
    return images ^ (images >= lowest).to(torch.uint8).mul_(255)


def _color(images: Tensor, factor: Tensor) -> Tensor:
    values = images.float()
    return _blend(_luma(values), values, factor)


def _sharpness(images: Tensor, factor: Tensor) -> Tensor:
    """Away from or towards Pillow's SMOOTH: the 3x3 sum with the centre five times, over 13, borders left alone."""
    values = images.float()
    three_rows = (values[:, :, :-2] + values[:, :, 1:-1]).add_(values[:, :, 2:])
    inner = values[:, :, 1:-1, 1:-1]
    total = (three_rows[..., :-2] + three_rows[..., 1:-1]).add_(three_rows[..., 2:]).add_(inner, alpha=4)
    sharpened = images.clone()
    sharpened[:, :, 1:-1, 1:-1] = _blend(total.div_(13).round_(), inner, factor)  # 13 is odd: no ties to round
    return sharpened


def _grey_from(images: Tensor, corner: Tensor) -> Tensor:
    """Grey from a corner to the lower right; the corner is a pixel number, row by row."""
    size = images.shape[-1]
    corner = corner.long()
    return cutout(images, corner // size, corner % size, size)


def _bilinear_shear_x(images: Tensor, slope: Tensor) -> Tensor:
    """Image.transform with BILINEAR; a shear in x never mixes rows, so two neighbours are enough."""
    size = images.shape[-1]
    centre = torch.arange(size, dtype=torch.float64) + 0.5
    x = centre + slope[:, None, None] * centre[:, None]
    left = (x - 0.5).floor()
    row, pixels = torch.arange(size)[:, None] * size, images.flatten(2)
    sources = (row + column.clamp(0, size - 1) for column in (left, left + 1))
    near, far = (pick(pixels, source.flatten(1)[:, None]).double() for source in sources)
    share = (x - 0.5 - left).flatten(1)[:, None]
    inside = ((x >= 0) & (x < size)).flatten(1)[:, None]
    return (far.sub_(near).mul_(share).add_(near).mul_(inside)).to(torch.uint8).view_as(images)


def _bilinear_shear_y(images: Tensor, slope: Tensor) -> Tensor:
    return _bilinear_shear_x(images.mT, slope).mT


TABLES: dict[str, Operation] = {
    "autocontrast": _autocontrast,
    "brightness": _brightness,
    "contrast": _contrast,
    "equalize": _equalize,
}
MATRICES: dict[str, Operation] = {
    "rotate": _rotate,
    "shear_x": _shear_x,
    "shear_y": _shear_y,
    "translate_x": _translate_x,
    "translate_y": _translate_y,
}
FILTERS: dict[str, Operation] = {
    "bilinear_shear_x": _bilinear_shear_x,
    "bilinear_shear_y": _bilinear_shear_y,
    "color": _color,
    "grey_from": _grey_from,
    "identity": _identity,
    "invert": _invert,
    "posterize": _posterize,
    "sharpness": _sharpness,
    "solarize": _solarize,
}
OPERATIONS: tuple[str, ...] = (*TABLES, *MATRICES, *FILTERS)

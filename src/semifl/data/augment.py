"""The views of semi-supervised learning, made for many pictures at once.

A weak view is a random crop and flip; a strong view distorts a weak one on top. Everything is drawn first, for all
pictures, and then applied in blocks, so a view depends on the generator alone and not on blocks or threads.
A person's own views (`Facts.weak_view`, `Facts.strong_view`) take the place of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from semifl.data import pil_ops
from semifl.data.dataset import Facts, OwnView
from semifl.data.pil_ops import OPERATIONS
from semifl.errors import UserError

Images = Tensor  # uint8 [n, c, s, s], c is 1 or 3
Kind = Literal["fixmatch", "reference"]

LAYERS = 2  # operations per strong view
BLOCK_PIXELS = 2**19  # pixels per block: fewer cost more calls, more cost memory, as positions outweigh pictures

# The 14 operations of the FixMatch paper and the range that each magnitude is drawn from. Translations are in shares
# of the side; posterize keeps the whole part of its draw, so 4 to 8 bits are equally likely.
FIXMATCH: dict[str, tuple[float, float]] = {
    "autocontrast": (0, 0),
    "brightness": (0.05, 0.95),
    "color": (0.05, 0.95),
    "contrast": (0.05, 0.95),
    "equalize": (0, 0),
    "identity": (0, 0),
    "posterize": (4, 9),
    "rotate": (-30, 30),
    "sharpness": (0.05, 0.95),
    "shear_x": (-0.3, 0.3),
    "shear_y": (-0.3, 0.3),
    "solarize": (0, 256),
    "translate_x": (-0.3, 0.3),
    "translate_y": (-0.3, 0.3),
}

# The 15 operations of the released SemiFL code and the two magnitudes that each can have, one as likely as the other.
REFERENCE: dict[str, tuple[float, float]] = {
    "autocontrast": (0, 0),
    "brightness": (1.9, 1.9),
    "color": (1.9, 1.9),
    "contrast": (1.9, 1.9),
    "grey_from": (0, 0),  # the corner is drawn apart
    "equalize": (0, 0),
    "invert": (0, 0),
    "posterize": (4, 4),
    "rotate": (-30, 30),
    "sharpness": (1.9, 1.9),
    "bilinear_shear_x": (-0.3, 0.3),
    "bilinear_shear_y": (-0.3, 0.3),
    "solarize": (0, 0),
    "translate_x": (-100 / 32, 100 / 32),
    "translate_y": (-100 / 32, 100 / 32),
}
REFERENCE_SQUARE = 40 / 32  # of the side


class WeakDraws(NamedTuple):
    """What chance decides in a weak view, one entry per picture."""

    top: Tensor  # corner of the crop in the padded picture
    left: Tensor
    flip: Tensor


def weak(images: Images, facts: Facts, generator: torch.Generator) -> Images:
    """A random crop after reflect padding, mirrored half of the time where a mirrored picture is as good."""
    if facts.weak_view:
        return _own(facts.weak_view, images, generator, "weak")
    return apply_weak(images, draw_weak(len(images), facts.size, facts.may_flip, generator))


def strong(images: Images, facts: Facts, kind: Kind, generator: torch.Generator) -> Images:
    """A weak view after two random operations and Cutout (`fixmatch`), or as the released SemiFL code does it.

    `fixmatch` is that paper's own: magnitudes uniform in their ranges, then a grey square of half the side, centred
    anywhere in the picture. `reference` follows the released SemiFL code: each operation happens with a probability
    drawn from U(0.2, 0.8), always at its maximum magnitude, and no Cutout follows. Read there, and kept: grey is 127;
    the 40-pixel square starts at most 11 pixels from the upper left corner and so always reaches the lower right one;
    shears are bilinear but rotation is nearest; solarize at threshold 0 is invert; a translation by 100 pixels of 32
    leaves nothing but black.
    """
    if facts.strong_view:
        return _own(facts.strong_view, images, generator, "strong")
    images = weak(images, facts, generator)
    n, size = len(images), facts.size
    if kind == "reference":
        return _distort(images, *_draw_reference(n, size, generator))
    images = _distort(images, *_draw_fixmatch(n, generator))
    top, left = torch.randint(size, (2, n), generator=generator) - size // 4
    return pil_ops.cutout(images, top, left, size // 2)


def draw_weak(n: int, size: int, may_flip: bool, generator: torch.Generator) -> WeakDraws:
    """Where to crop and whether to mirror; consumes the same randomness whether or not pictures may be mirrored."""
    places = 2 * _padding(size) + 1
    top = torch.randint(places, (n,), generator=generator)
    left = torch.randint(places, (n,), generator=generator)
    flip = torch.rand(n, generator=generator) < 0.5
    return WeakDraws(top, left, flip & may_flip)


def apply_weak(images: Images, draws: WeakDraws) -> Images:
    """Reflect-pad, crop at (top, left), then mirror the pictures that drew it."""
    return _in_blocks(lambda images, *block: _crop(images, WeakDraws(*block)), images, *draws)


def normalize(images: Images, facts: Facts) -> Tensor:
    """(x/255 - mean) / std per channel as float32, channels last; the features where these are known."""
    if facts.lookup:
        return facts.lookup(images)
    normal = torch.empty(images.shape, memory_format=torch.channels_last)
    # Channel by channel, the change of memory format and type rides along with the arithmetic.
    for channel, (mean, std) in enumerate(zip(facts.mean, facts.std, strict=True)):
        torch.add(images[:, channel] * (1 / (255 * std)), -mean / std, out=normal[:, channel])
    return normal


def mix(a: Tensor, b: Tensor, weight: Tensor) -> Tensor:
    """weight·a + (1 - weight)·b, with one weight for all samples or one for each."""
    weight = weight.view(-1, *[1] * (a.dim() - 1))
    return weight * a + (1 - weight) * b


def beta_weights(a: float, n: int, rng: np.random.Generator) -> Tensor:
    """n draws of Beta(a, a) as float32."""
    return torch.from_numpy(rng.beta(a, a, n).astype(np.float32))


def _own(view: OwnView, images: Images, generator: torch.Generator, name: str) -> Images:
    """A person's own view of a copy of the pictures; what it draws without the generator is addressed all the same."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(torch.randint(2**62, (), generator=generator)))
        try:
            seen: object = view(images.clone(), generator)
        except Exception as error:  # whatever a person's own code may raise
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise UserError(f"the {name} view failed on pictures {list(images.shape)}: {reason}") from error
    if not isinstance(seen, Tensor) or seen.dtype != torch.uint8 or seen.shape != images.shape:
        got = f"{seen.dtype} {list(seen.shape)}" if isinstance(seen, Tensor) else type(seen).__name__
        raise UserError(f"the {name} view must return pictures as it gets them, uint8 {list(images.shape)}, not {got}")
    return seen


def _padding(size: int) -> int:
    return max(1, round(4 * size / 32))


def _in_blocks(view: Callable[..., Images], images: Images, *draws: Tensor) -> Images:
    """view(images, *draws), a bounded number of pictures at a time."""
    block = max(1, BLOCK_PIXELS // images[0, 0].numel()) if len(images) else 1
    views = [view(*parts) for parts in zip(*(torch.split(t, block) for t in (images, *draws)), strict=True)]
    return views[0] if len(views) == 1 else torch.cat(views)


def _crop(images: Images, draws: WeakDraws) -> Images:
    """Reflection, crop and mirror only say where each pixel comes from, so all three are one gather."""
    size = images.shape[-1]
    rows, columns = _reflected(draws.top, size), _reflected(draws.left, size)
    columns = torch.where(draws.flip[:, None], columns.flip(1), columns)
    source = (rows * size)[:, :, None] + columns[:, None, :]
    return pil_ops.pick(images.flatten(2), source.flatten(1)[:, None]).view_as(images)


def _reflected(start: Tensor, size: int) -> Tensor:
    """Source positions of `size` pixels from `start` on in the padded picture, mirrored at the edges, [n, size]."""
    position = (start[:, None] + torch.arange(size) - _padding(size)).int().abs_()
    return size - 1 - (size - 1 - position).abs()


def _distort(images: Images, operation: Tensor, magnitude: Tensor) -> Images:
    """Give each picture its row of operations, [n, LAYERS], one after the other."""

    def view(images: Images, operation: Tensor, magnitude: Tensor) -> Images:
        for layer in range(LAYERS):
            images = pil_ops.apply(images, operation[:, layer], magnitude[:, layer])
        return images

    return _in_blocks(view, images, operation, magnitude)


def _draw_fixmatch(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Operations (positions in OPERATIONS) and magnitudes, each [n, LAYERS]."""
    operation, low, high = _draw_operations(FIXMATCH, n, generator)
    share = torch.rand(n, LAYERS, dtype=torch.float64, generator=generator)
    return operation, low + share * (high - low)


def _draw_reference(n: int, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Operations (positions in OPERATIONS) and magnitudes, each [n, LAYERS]."""
    operation, low, high = _draw_operations(REFERENCE, n, generator)
    magnitude = torch.where(torch.rand(n, LAYERS, generator=generator) < 0.5, low, high)

    # A square around a random centre is first moved inside at its upper left; being larger than the picture, it then
    # covers everything from that corner on.
    centre = torch.rand(2, n, LAYERS, dtype=torch.float64, generator=generator) * size
    top, left = (centre - round(REFERENCE_SQUARE * size) / 2).clamp(min=0).floor()
    magnitude = torch.where(operation == OPERATIONS.index("grey_from"), top * size + left, magnitude)

    probability = torch.empty(n, LAYERS).uniform_(0.2, 0.8, generator=generator)
    happens = torch.rand(n, LAYERS, generator=generator) < probability
    return torch.where(happens, operation, OPERATIONS.index("identity")), magnitude


def _draw_operations(
    pool: dict[str, tuple[float, float]], n: int, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """LAYERS operations per picture, uniform with replacement, and the ends of their magnitudes."""
    choice = torch.randint(len(pool), (n, LAYERS), generator=generator)
    positions = torch.tensor([OPERATIONS.index(name) for name in pool])
    low, high = torch.tensor(list(pool.values()), dtype=torch.float64).T
    return positions[choice], low[choice], high[choice]

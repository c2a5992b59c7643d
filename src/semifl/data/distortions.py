"""The operations of a strong view, each at a rising magnitude on a real picture: the paper's figure of RandAugment."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from semifl.data.augment import FIXMATCH
from semifl.data.pictures import centre_square
from semifl.data.pil_ops import OPERATIONS, apply

SIDE = 96  # pixels
STEPS = 5  # magnitudes of an operation

# From the mildest to the strongest that FixMatch's strong view draws; the others have no magnitude.
RISING = {
    "brightness": (0.95, 0.05),
    "color": (0.95, 0.05),
    "contrast": (0.95, 0.05),
    "posterize": (8, 4),
    "rotate": (0, 30),
    "sharpness": (0.95, 0.05),
    "shear_x": (0, 0.3),
    "shear_y": (0, 0.3),
    "solarize": (256, 0),
    "translate_x": (0, 0.3),
    "translate_y": (0, 0.3),
}


class Row(NamedTuple):
    operation: str
    pictures: list[Tensor]  # uint8 [side, side, 3]
    magnitudes: list[str]


def real_picture() -> Tensor:
    """A flower in colour, uint8 [3, side, side]; it comes with scikit-learn, so nothing is downloaded."""
    from PIL import Image
    from sklearn.datasets import load_sample_image

    whole = Image.fromarray(load_sample_image("flower.jpg"))
    return torch.from_numpy(np.array(centre_square(whole, SIDE))).permute(2, 0, 1).contiguous()


def rows(picture: Tensor) -> list[Row]:
    """Every operation that has an effect, the plain ones with one picture."""
    found = []
    for name in FIXMATCH:
        if name == "identity":
            continue
        first, last = RISING.get(name, (0.0, 0.0))
        magnitudes = torch.linspace(first, last, STEPS if name in RISING else 1, dtype=torch.float64)
        copies = picture[None].expand(len(magnitudes), -1, -1, -1).clone()
        numbers = torch.full((len(magnitudes),), list(OPERATIONS).index(name))
        seen = apply(copies, numbers, magnitudes)
        captions = [f"{float(value):.3g}" for value in magnitudes] if name in RISING else ["no magnitude"]
        found.append(Row(name, [each.permute(1, 2, 0) for each in seen], captions))
    return found

"""Draws docs/pictures/views.png from the program's own views. curves.png is of `semifl run digits --set seed=1`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_sample_images

from semifl.data.augment import mix, strong, weak
from semifl.data.dataset import Facts

SIZE, GAP, SHOWN = 64, 6, 144
FACTS = Facts(("thing",), (0.5,) * 3, (0.25,) * 3, may_flip=True, channels=3, size=SIZE)


def photographs() -> torch.Tensor:
    """The middles of scikit-learn's two sample photographs."""
    crops = [photo[20:420, 110:510] for photo in load_sample_images().images]
    small = [np.asarray(Image.fromarray(crop).resize((SIZE, SIZE), Image.Resampling.LANCZOS)) for crop in crops]
    return torch.from_numpy(np.stack(small)).permute(0, 3, 1, 2).contiguous()


def main() -> None:
    images = photographs()
    generator = torch.Generator().manual_seed(4)
    views = [
        images,
        weak(images, FACTS, generator),
        strong(images, FACTS, "fixmatch", generator),
        strong(images, FACTS, "fixmatch", generator),
        mix(images.float(), images.roll(1, 0).float(), torch.tensor(0.65)).to(torch.uint8),
    ]
    step = SHOWN + GAP
    sheet = Image.new("RGB", (len(views) * step - GAP, len(images) * step - GAP), "white")
    for column, pictures in enumerate(views):
        for row, picture in enumerate(pictures.permute(0, 2, 3, 1).numpy()):
            large = Image.fromarray(picture).resize((SHOWN, SHOWN), Image.Resampling.NEAREST)
            sheet.paste(large, (column * step, row * step))
    sheet.quantize(128).save(Path(__file__).with_name("pictures") / "views.png", optimize=True)


if __name__ == "__main__":
    main()

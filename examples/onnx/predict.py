"""Class and probabilities of pictures by a model that `semifl export RUN --to onnx` wrote, without semifl.

pip install onnxruntime pillow numpy
python predict.py model.onnx picture.png …
"""

import json
import sys
from pathlib import Path

import numpy as np
import onnxruntime
from PIL import Image, ImageOps


def square(path: Path, size: int, channels: int) -> np.ndarray:
    """As the model saw pictures in training: upright, the middle cut out, resized, grey or colour."""
    picture = ImageOps.exif_transpose(Image.open(path)).convert("L" if channels == 1 else "RGB")
    side = min(picture.size)
    left, top = (picture.width - side) // 2, (picture.height - side) // 2
    box = (left, top, left + side, top + side)
    pixels = np.asarray(picture.resize((size, size), Image.Resampling.LANCZOS, box=box))
    return np.atleast_3d(pixels).transpose(2, 0, 1)


def main(model: str, *pictures: str) -> None:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    about = json.loads(session.get_modelmeta().custom_metadata_map["semifl"])  # classes, size, channels
    batch = np.stack([square(Path(each), about["size"], about["channels"]) for each in pictures])
    (probabilities,) = session.run(None, {"pictures": batch})  # uint8 in, normalisation is inside
    for picture, shares in zip(pictures, probabilities, strict=True):
        said = dict(zip(about["classes"], (round(float(share), 4) for share in shares), strict=True))
        print(picture, max(said, key=lambda name: said[name]), json.dumps(said), sep="\t")


if __name__ == "__main__":
    main(*sys.argv[1:])

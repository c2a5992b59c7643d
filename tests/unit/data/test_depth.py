"""Deep greys: scaled by the bits that they use, and all pictures of a folder by the same."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from semifl.data.datasets.folder import Folder
from semifl.data.depth import bits_of, deepest, to_bytes
from semifl.data.pictures import decode


def save(path: Path, values: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values.astype(np.uint16)).save(path)
    return path


@pytest.mark.parametrize(
    ("brightest", "bits"), [(0, 8), (255, 8), (256, 10), (1023, 10), (3000, 12), (4096, 14), (65535, 16)]
)
def test_the_least_depth_that_has_room(brightest: int, bits: int) -> None:
    assert bits_of(brightest) == bits


def test_values_become_bytes_by_hand() -> None:
    values = np.array([[0, 4095, 2048, 16]], dtype=np.uint16)
    # 2048 / 4095 · 255 = 127.53, 16 / 4095 · 255 = 0.996; by sixteen bits everything would lie between 0 and 16.
    assert to_bytes(values, 12).tolist() == [[0, 255, 128, 1]]
    assert to_bytes(values, 0).tolist() == [[0, 255, 128, 1]]
    assert to_bytes(values, 16).tolist() == [[0, 16, 8, 0]]
    assert to_bytes(np.array([[5000]]), 12).tolist() == [[255]]  # brighter than white is white


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_twelve_bits_in_a_file_of_sixteen_are_not_black(tmp_path: Path, suffix: str) -> None:
    ramp = np.tile(np.linspace(0, 4095, 16), (16, 1))
    pixels = decode(save(tmp_path / f"ramp{suffix}", ramp), 16)
    expected = torch.from_numpy(np.rint(ramp.astype(np.uint16) / 4095 * 255).astype(np.uint8))
    assert torch.equal(pixels[0], expected)


def test_all_pictures_of_a_folder_have_the_servers_range(tmp_path: Path) -> None:
    # The server's brightest pixel is 4000: twelve bits. A dark picture by itself would be taken for one of ten.
    for number, (part, grey) in enumerate(
        [("labeled/a", 4000), ("labeled/b", 800), ("clients/north", 1000), ("test/a", 2000), ("test/b", 300)]
    ):
        save(tmp_path / part / f"{number}.png", np.full((8, 8), grey))
    assert deepest(sorted(tmp_path.rglob("*.png"))) == 12
    data = Folder(str(tmp_path), size=8).load()
    assert data.facts.bits == 12
    assert data.images[:, 0, 0, 0].tolist() == [round(255 * grey / 4095) for grey in (4000, 800, 1000)]
    assert data.test_images[:, 0, 0, 0].tolist() == [round(255 * grey / 4095) for grey in (2000, 300)]
    again = Folder(str(tmp_path), size=8).load()  # from the cache
    assert again.facts.bits == 12
    stated = Folder(str(tmp_path), size=8, bits=16).load()
    assert stated.images[:, 0, 0, 0].tolist() == [round(grey / 257) for grey in (4000, 800, 1000)]


def test_pictures_of_eight_bits_have_no_depth(tmp_path: Path) -> None:
    Image.new("L", (4, 4), 200).save(tmp_path / "plain.png")
    (tmp_path / "broken.png").write_bytes(b"nothing")
    assert deepest([tmp_path / "plain.png", tmp_path / "broken.png"]) == 0

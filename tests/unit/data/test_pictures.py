"""Files in place of pictures that are no files."""

import os
import struct
import zlib
from pathlib import Path

import pytest
from PIL.ImageFile import ImageFile

from semifl.data.depth import deepest
from semifl.data.dicom import is_dicom
from semifl.data.pictures import UnreadableError, decode
from semifl.regular import remove_folder


@pytest.mark.parametrize("name", ["pipe.png", "pipe.dcm", "pipe"])
def test_a_pipe_in_place_of_a_picture_does_not_wait(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(UnreadableError, match="it is a pipe and not a file"):
        decode(tmp_path / name, 8)
    assert deepest([tmp_path / name]) == 0


def test_a_pipe_without_a_suffix_is_not_taken_for_dicom(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert not is_dicom(tmp_path / "pipe")


def test_a_pipe_in_place_of_a_folder_does_not_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    remove_folder(tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()  # whoever wants a folder there is told


def png(width: int, height: int, bits: int = 8, kind: int = 0) -> bytes:
    """Return a PNG file that claims this size and ends after its header and a few pixels."""
    parts = {b"IHDR": struct.pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0), b"IDAT": zlib.compress(b"\0" * 9)}
    chunks = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts.items()
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


@pytest.mark.parametrize(
    ("width", "height", "bits", "kind"),
    [(13_300, 13_300, 8, 6), (13_300, 13_300, 16, 0), (1, 178_000_000, 8, 0), (50_000_001, 1, 1, 0)],
)
def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int, height: int, bits: int, kind: int
) -> None:
    def load(picture: ImageFile) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(ImageFile, "load", load)
    (tmp_path / "large.png").write_bytes(png(width, height, bits, kind))
    with pytest.raises(UnreadableError, match=r"it has [\d,]+ × [\d,]+ pixels, and 50,000,000 is the most: make it"):
        decode(tmp_path / "large.png", 8)
    assert deepest([tmp_path / "large.png"]) == 0


def test_a_picture_of_fifty_million_pixels_is_decoded(tmp_path: Path) -> None:
    (tmp_path / "large.png").write_bytes(png(10_000, 5_000))
    with pytest.raises(UnreadableError, match="truncated"):  # so it was begun
        decode(tmp_path / "large.png", 8)

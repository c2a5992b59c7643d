"""Files in place of pictures that are no files."""

import os
from pathlib import Path

import pytest

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

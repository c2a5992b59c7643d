"""Only regular files are read and added to, and only if they are not too large."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from semifl.regular import add_text, open_regular, read_bytes, read_text, why

ODD: dict[str, Callable[[Path], object]] = {
    "a folder": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
}
DOERS: list[Callable[[Path], object]] = [
    read_bytes,
    lambda path: open_regular(path, 10).__enter__(),
    lambda path: add_text(path, "more"),
]


@pytest.mark.parametrize("kind", ["a pipe", "a device"])
@pytest.mark.parametrize("do", DOERS, ids=["read", "refuse", "add"])
def test_what_is_no_file_is_named(tmp_path: Path, kind: str, do: Callable[[Path], object]) -> None:
    ODD[kind](tmp_path / "odd")
    with pytest.raises(OSError, match=f"it is {kind} and not a file") as caught:
        do(tmp_path / "odd")
    assert caught.value.filename == str(tmp_path / "odd")


def test_a_folder_is_none_either(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="it is a folder and not a file"):
        read_bytes(tmp_path)
    with pytest.raises(IsADirectoryError):
        add_text(tmp_path, "more")


def test_a_socket_is_none_either(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        with pytest.raises(OSError, match="No such device or address"):
            read_bytes(tmp_path / "s")


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("größer", encoding="utf-8")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_text(tmp_path / "link") == "größer"


def test_a_file_of_absurd_size_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(1 << 42)  # four terabytes, of which none is on the disk
    with pytest.raises(OSError, match="it has 4,398,046,511,104 bytes, and no more than 268,435,456 are read"):
        read_text(tmp_path / "large")


def test_as_many_bytes_as_are_allowed_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"12345")
    assert read_bytes(tmp_path / "file", largest=5) == b"12345"
    with pytest.raises(OSError, match="it has 5 bytes, and no more than 4 are read"):
        read_bytes(tmp_path / "file", largest=4)


def test_text_is_added_at_the_end(tmp_path: Path) -> None:
    add_text(tmp_path / "file", "one\n")
    add_text(tmp_path / "file", "two\n")
    assert (tmp_path / "file").read_text() == "one\ntwo\n"


def test_why_is_on_one_line_and_without_a_number() -> None:
    assert why(FileNotFoundError(2, "No such file or directory", "x")) == "No such file or directory"
    assert why(ValueError("two\nlines")) == "two lines"

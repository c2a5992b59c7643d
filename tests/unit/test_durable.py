"""A file is old or new, never half."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from semifl import durable
from semifl.durable import replace_file, replace_text


@pytest.fixture
def umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def test_a_new_file_appears_whole_and_alone(tmp_path: Path) -> None:
    replace_file(tmp_path / "a" / "b" / "model.bin", lambda part: part.write_bytes(b"new") and None)

    assert (tmp_path / "a" / "b" / "model.bin").read_bytes() == b"new"
    assert [path.name for path in (tmp_path / "a" / "b").iterdir()] == ["model.bin"]


def test_while_it_is_written_the_old_file_is_there(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"old")
    seen = {}

    def write(part: Path) -> None:
        part.write_bytes(b"ne")
        seen["half"] = path.read_bytes()
        seen["same folder"] = part.parent == path.parent  # one step in place is only possible on one file system
        part.write_bytes(b"new")

    replace_file(path, write)

    assert seen == {"half": b"old", "same folder": True}
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("error", [OSError("disk full"), RuntimeError("bug"), KeyboardInterrupt()])
@pytest.mark.parametrize("old", [b"old", None])
def test_a_write_that_fails_leaves_the_old_file_and_no_part(
    tmp_path: Path, error: BaseException, old: bytes | None
) -> None:
    path = tmp_path / "model.bin"
    if old is not None:
        path.write_bytes(old)

    def write(part: Path) -> None:
        part.write_bytes(b"half a fi")
        raise error

    with pytest.raises(type(error)):
        replace_file(path, write)

    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == ({} if old is None else {"model.bin": old})


def test_a_write_that_makes_nothing_fails_and_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"old")

    with pytest.raises(FileNotFoundError):
        replace_file(path, lambda part: None)

    assert path.read_bytes() == b"old"


def test_a_disk_that_fails_to_sync_leaves_the_old_file_and_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"old")

    def fail(handle: int) -> None:
        raise OSError("input/output error")

    monkeypatch.setattr(durable.os, "fsync", fail)
    with pytest.raises(OSError, match="input/output error"):
        replace_text(path, "new")

    assert {each.name: each.read_bytes() for each in tmp_path.iterdir()} == {"model.bin": b"old"}


def test_the_content_is_on_disk_before_it_is_put_in_place_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "model.bin"
    path.write_bytes(b"old")
    synced = []

    def record(handle: int) -> None:
        synced.append((Path(f"/proc/self/fd/{handle}").readlink().name, path.read_bytes()))

    monkeypatch.setattr(durable.os, "fsync", record)
    replace_text(path, "new")

    assert synced == [("model.bin.part", b"old"), (tmp_path.name, b"new")]


def test_a_part_left_by_a_killed_process_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "notes.txt.part").write_text("half")

    replace_text(tmp_path / "notes.txt", "new")

    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {"notes.txt": "new"}


def test_text_is_utf8_without_changes(tmp_path: Path) -> None:
    text = "Größe = 3 × 4\nλ\r\n"

    replace_text(tmp_path / "notes.txt", text)

    assert (tmp_path / "notes.txt").read_bytes() == text.encode("utf-8")


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o027, 0o640), (0o077, 0o600)])
@pytest.mark.usefixtures("umask")
def test_the_file_is_as_readable_as_the_umask_allows(tmp_path: Path, mask: int, mode: int) -> None:
    def write(part: Path) -> None:  # as safetensors does
        os.close(os.open(part, os.O_CREAT | os.O_WRONLY, 0o600))

    os.umask(mask)
    replace_file(tmp_path / "model.bin", write)

    assert stat.S_IMODE((tmp_path / "model.bin").stat().st_mode) == mode
    assert os.umask(mask) == mask  # looking at it did not change it

"""Sealed files: only the passphrase opens them, and nothing in them can reach outside the folder."""

from __future__ import annotations

import io
import re
import stat
import zipfile
from pathlib import Path

import pytest

from semifl.deploy import sealing
from semifl.errors import UserError

pytest.importorskip("cryptography")


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    folder = tmp_path / "in"
    (folder / "startup").mkdir(parents=True)
    (folder / "kit.toml").write_bytes(b"a = 1\n")
    (folder / "startup" / "key").write_bytes(b"\0secret\xff")
    sealing.seal(folder, tmp_path / "a.kit", {"name": "a"}, "abcd-efgh")
    return tmp_path / "a.kit"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_there_and_back(sealed: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sealing.unseal(sealed, "abcd-efgh", out)
    assert (out / "kit.toml").read_bytes() == b"a = 1\n"
    assert (out / "startup" / "key").read_bytes() == b"\0secret\xff"
    assert (mode(out), mode(out / "startup"), mode(out / "startup" / "key")) == (0o700, 0o700, 0o600)


def test_the_file_is_its_owners_alone_and_hides_its_content(sealed: Path) -> None:
    assert mode(sealed) == 0o600
    assert b"secret" not in sealed.read_bytes()
    assert sealing.read_header(sealed) == {"name": "a"}


@pytest.mark.parametrize("typed", ["ABCD EFGH", "abcdefgh", " abcd-EFGH\n"])
def test_hyphens_blanks_and_capitals_do_not_count(sealed: Path, tmp_path: Path, typed: str) -> None:
    sealing.unseal(sealed, typed, tmp_path / "out")
    assert (tmp_path / "out" / "kit.toml").is_file()


def test_a_wrong_passphrase(sealed: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^that is not the passphrase of a\.kit$"):
        sealing.unseal(sealed, "abcd-efgi", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_changed_header_is_noticed_even_with_a_fresh_sum(sealed: Path, tmp_path: Path) -> None:
    import hashlib

    body = sealed.read_bytes()[: -sealing.SUM].replace(b'"a"', b'"b"')
    sealed.write_bytes(body + hashlib.sha256(body).digest())
    with pytest.raises(UserError, match="not the passphrase"):
        sealing.unseal(sealed, "abcd-efgh", tmp_path / "out")


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:60] + b"x" + b[61:], lambda b: b[:14]])
def test_a_damaged_file(sealed: Path, tmp_path: Path, damage: object) -> None:
    sealed.write_bytes(damage(sealed.read_bytes()))  # type: ignore[operator]
    with pytest.raises(UserError, match="is damaged or incomplete: fetch it again"):
        sealing.unseal(sealed, "abcd-efgh", tmp_path / "out")


def test_some_other_file(tmp_path: Path) -> None:
    (tmp_path / "b.kit").write_bytes(b"PK\x03\x04")
    with pytest.raises(UserError, match="is not a sealed kit"):
        sealing.read_header(tmp_path / "b.kit")


@pytest.mark.parametrize("name", ["../up", "/etc/passwd", "a/../../up", "..\\up", "C:up", "a/", "./a/../b"])
def test_no_file_leaves_the_folder(tmp_path: Path, name: str) -> None:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        archive.writestr("fine", b"1")
        archive.writestr(name, b"2")
    with pytest.raises(UserError, match="outside the kit"):
        sealing._unpack(memory.getvalue(), tmp_path / "deep" / "out", "a.kit")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_no_flood(tmp_path: Path) -> None:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(sealing.LARGEST + 1))
    with pytest.raises(UserError, match="more than a kit can"):
        sealing._unpack(memory.getvalue(), tmp_path / "out", "a.kit")


def test_passphrases_hold_120_bits() -> None:
    found = {sealing.new_passphrase() for _ in range(50)}
    assert len(found) == 50
    assert all(re.fullmatch(r"[a-z2-7]{4}(-[a-z2-7]{4}){5}", one) for one in found)  # 24 characters of 5 bits

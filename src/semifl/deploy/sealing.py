"""A folder in one encrypted file: how a kit, which holds a private key, travels by e-mail or on a stick."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import secrets
import zipfile
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from semifl.errors import UserError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

# magic, header, newline | salt | nonce | ciphertext | SHA-256 of all before. The header can be read by anybody, but not
# changed: it is authenticated. The sum tells a damaged file from a wrong passphrase.
MAGIC = b"SEMIFL-KIT-1\n"
SALT, NONCE, SUM = 16, 12, 32
LARGEST, MOST = 16 * 2**20, 100  # bytes and files: kits are small, and what claims to be larger is not a kit
NEEDS = "opening a sealed kit needs the flare extra: pip install 'semifl[flare]'"


def new_passphrase() -> str:
    """120 random bits as six groups of four letters and digits, none of which look alike."""
    letters = base64.b32encode(secrets.token_bytes(15)).decode().lower()
    return "-".join(letters[start : start + 4] for start in range(0, 24, 4))


def seal(folder: Path, file: Path, header: dict[str, str], passphrase: str) -> None:
    """Encrypt all files below `folder` into `file`, which only its owner can read."""
    salt, nonce = secrets.token_bytes(SALT), secrets.token_bytes(NONCE)
    front = MAGIC + json.dumps(header).encode() + b"\n" + salt + nonce
    body = front + _cipher(passphrase, salt).encrypt(nonce, _pack(folder), front)
    write_private(file, body + hashlib.sha256(body).digest())


def read_header(file: Path) -> dict[str, str]:
    """What a sealed file says it is, without the passphrase."""
    return _parts(file)[0]


def unseal(file: Path, passphrase: str, folder: Path) -> None:
    """Decrypt `file` into `folder`, which must be new or empty and becomes its owner's alone."""
    _, front, sealed = _parts(file)
    salt, nonce = front[-SALT - NONCE : -NONCE], front[-NONCE:]
    cipher = _cipher(passphrase, salt)
    from cryptography.exceptions import InvalidTag

    try:
        packed = cipher.decrypt(nonce, sealed, front)
    except InvalidTag as error:
        raise UserError(f"that is not the passphrase of {file.name}") from error
    _unpack(packed, folder, file.name)


def write_private(path: Path, data: bytes) -> None:
    """A file that nobody else can read at any moment, put in place in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(handle)
    part.replace(path)


def _parts(file: Path) -> tuple[dict[str, str], bytes, bytes]:
    """The header, everything in front of the ciphertext, and the ciphertext of an undamaged file."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from error
    if not content.startswith(MAGIC):
        raise UserError(f"{file} is not a sealed kit of this version of semifl")
    body, total = content[:-SUM], content[-SUM:]
    end = body.find(b"\n", len(MAGIC)) + 1
    if not end or len(body) < end + SALT + NONCE or hashlib.sha256(body).digest() != total:
        raise UserError(f"{file} is damaged or incomplete: fetch it again")
    front = body[: end + SALT + NONCE]
    return _header(file, body[len(MAGIC) : end]), front, body[len(front) :]


def _header(file: Path, line: bytes) -> dict[str, str]:
    """What the file says of itself; the checksum is no seal, so anybody may have written anything here."""
    try:
        header = json.loads(line)
    except ValueError:
        header = None
    if not isinstance(header, dict) or not all(isinstance(value, str) for value in header.values()):
        raise UserError(f"{file} does not say whose kit it is: do not use it")
    return header


def _cipher(passphrase: str, salt: bytes) -> AESGCM:
    """AES-256-GCM with a key from the passphrase, in which hyphens, blanks and capitals do not count."""
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.kdf.scrypt import Scrypt
    except ImportError as error:
        raise UserError(NEEDS) from error
    letters = "".join(letter for letter in passphrase.lower() if letter.isalnum())
    return AESGCM(Scrypt(salt=salt, length=32, n=2**15, r=8, p=1).derive(letters.encode()))


def _pack(folder: Path) -> bytes:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.writestr(zipfile.ZipInfo(path.relative_to(folder).as_posix()), path.read_bytes())
    return memory.getvalue()


def _unpack(packed: bytes, folder: Path, name: str) -> None:
    """Write the files, each as a plain file below `folder`: whoever made the archive decides nothing else."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        members = archive.infolist()
        if len(members) > MOST or sum(member.file_size for member in members) > LARGEST:
            raise UserError(f"{name} holds more than a kit can: do not use it")
        for member in members:
            if not _is_inside(member.filename):
                raise UserError(f"{name} holds a file that would lie outside the kit: do not use it")
        for member in members:
            target = folder / member.filename
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(target, archive.read(member))


def _is_inside(name: str) -> bool:
    parts = PurePosixPath(name).parts
    plain = all(part not in ("", ".", "..") for part in parts) and not any(letter in name for letter in "\\:\0")
    return bool(parts) and plain and not name.startswith("/") and not name.endswith("/")

"""Files that were damaged behind our back, and disks without room: one sentence, nothing deleted, the same bits."""

import random
import shutil
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from faults.harness import FULL, Zygote, assert_same, bounded, sentences, table, write_config
from semifl.cli import invoke
from semifl.configuration.config import decode
from semifl.errors import RunStopped, UserError
from semifl.running.context import Silent
from semifl.running.loop import resume, start

KINDS = ("flip", "replace", "zero", "truncate", "empty", "grow", "header")


class Interrupted(Exception):
    pass


class InterruptAfter(Silent):
    def __init__(self, number: int) -> None:
        self.number = number

    def round(self, record, best) -> None:
        if record["round"] == self.number:
            raise Interrupted


class Listening(Silent):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def small() -> dict:
    return {**table("paper"), "labels_only": False}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("whole") / "run"
    start(decode(small()), directory)
    return directory


@pytest.fixture(scope="module")
def halted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after its third round of four."""
    directory = tmp_path_factory.mktemp("halted") / "run"
    with pytest.raises(Interrupted):
        start(decode(small()), directory, observer=InterruptAfter(3))
    return directory


def copy_of(directory: Path, tmp_path: Path) -> Path:
    shutil.rmtree(tmp_path / "copy", ignore_errors=True)
    return Path(shutil.copytree(directory, tmp_path / "copy"))


def damage(path: Path, kind: str, chance: random.Random) -> None:
    """Change a file in one of the ways in which files get damaged."""
    content = bytearray(path.read_bytes())
    at = chance.randrange(len(content))
    if kind == "flip":
        content[at] ^= 1 << chance.randrange(8)
    elif kind == "replace":
        content[at] = (content[at] + chance.randrange(1, 256)) % 256
    elif kind == "header":  # the part that says what the bytes mean, by another letter or digit
        spots = [spot for spot in range(8, 8 + struct.unpack("<Q", content[:8])[0]) if chr(content[spot]).isalnum()]
        at = chance.choice(spots)
        content[at] = ord(chance.choice([sign for sign in "0123456789BFIU" if ord(sign) != content[at]]))
    elif kind == "zero":
        length = min(chance.randrange(1, 600), len(content) - at)
        changed = content[:at] + bytes(length) + content[at + length :]
        content = changed if changed != content else content[:-1]
    elif kind == "truncate":
        del content[at:]
    elif kind == "empty":
        content.clear()
    elif kind == "grow":
        content += chance.randbytes(chance.randrange(1, 100))
    assert content != path.read_bytes()
    path.write_bytes(content)


def first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:200]


def files(directory: Path) -> dict[Path, bytes]:
    """Every file but the journal of what was tried, which may grow."""
    kept = (path for path in directory.rglob("*") if path.is_file() and path.name not in ("events.jsonl", ".lock"))
    return {path: path.read_bytes() for path in kept}


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_newest_checkpoint_falls_back(whole: Path, halted: Path, tmp_path: Path, kind: str) -> None:
    failures = []
    for seed in range(60 if FULL else 6):
        directory, watcher, chance = copy_of(halted, tmp_path), Listening(), random.Random(f"{kind} {seed}")
        damage(directory / "checkpoint/000003.safetensors", kind, chance)
        try:
            with bounded():
                resume(directory, observer=watcher)
            assert_same(directory, whole)
            assert any("000003.safetensors is damaged" in warning for warning in watcher.warnings), "no warning"
        except Exception as error:
            failures.append(f"{kind} {seed}: {type(error).__name__}: {first_line(error)}")
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("kind", KINDS)
def test_with_both_checkpoints_damaged_one_sentence_and_nothing_is_deleted(
    halted: Path, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for seed in range(20 if FULL else 2):
        directory, chance = copy_of(halted, tmp_path), random.Random(f"{kind} {seed} both")
        for name in ("000002", "000003"):
            damage(directory / f"checkpoint/{name}.safetensors", kind, chance)
        before = files(directory)
        assert invoke(["resume", str(directory), "--workers", "1"]) == 2, f"{kind} {seed}"
        *_, sentence = capsys.readouterr().err.splitlines()
        assert sentence.startswith(f"semifl: no checkpoint in {directory / 'checkpoint'} can be read")
        assert files(directory) == before, f"{kind} {seed}"


def test_every_digit_of_a_checkpoint_header_is_covered(halted: Path, whole: Path, tmp_path: Path) -> None:
    """The round, the format and the types of the tensors: each is changed alone."""
    failures = []
    for old, new in (
        (b'"round":"3"', b'"round":"1"'),
        (b'"round":"3"', b'"round":"9"'),
        (b'"format":"2"', b'"format":"7"'),
        (b'"dtype":"F32"', b'"dtype":"I32"'),
        (b'"dtype":"F32"', b'"dtype":"U32"'),
        (b'"shape":[6,3,3,3]', b'"shape":[3,6,3,3]'),
    ):
        directory, watcher = copy_of(halted, tmp_path), Listening()
        path = directory / "checkpoint/000003.safetensors"
        content = path.read_bytes()
        assert old in content, old
        path.write_bytes(content.replace(old, new, 1))
        try:
            resume(directory, observer=watcher)
            assert_same(directory, whole)
            assert watcher.warnings, "no warning"
        except Exception as error:
            message = first_line(error)
            failures.append(f"{old.decode()} → {new.decode()}: {type(error).__name__}: {message}")
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_memory_of_a_client_is_named_or_healed_but_never_used(
    whole: Path, halted: Path, tmp_path: Path, kind: str
) -> None:
    """Whatever the last round needs of it: the same bits, or a sentence that names the client; never another model."""
    failures = []
    for seed in range(40 if FULL else 4):
        directory, chance = copy_of(halted, tmp_path), random.Random(f"{kind} {seed} memory")
        for path in sorted(directory.glob("checkpoint/memory/*/*.safetensors")):
            damage(path, kind, chance)
        try:
            with bounded():
                resume(directory)
            assert_same(directory, whole)
        except (UserError, RunStopped) as error:
            assert "memory of client" in str(error)  # noqa: PT017  (either outcome is right)
        except Exception as error:
            failures.append(f"{kind} {seed}: {type(error).__name__}: {first_line(error)}")
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("cut", [1, 2, 30, -1])
def test_a_half_written_last_line_is_written_again(whole: Path, halted: Path, tmp_path: Path, cut: int) -> None:
    directory = copy_of(halted, tmp_path)
    lines = (directory / "rounds.jsonl").read_bytes()
    with (directory / "rounds.jsonl").open("ab") as file:
        file.write(lines.splitlines()[-1][:cut])  # the beginning of a fourth line
    with (directory / "events.jsonl").open("ab") as file:
        file.write(b'{"time": "2026-01-0')
    resume(directory)
    assert_same(directory, whole)


def test_lines_that_are_lost_are_not_passed_over_in_silence(whole: Path, halted: Path, tmp_path: Path) -> None:
    """The checkpoint says three rounds and the file has fewer: the same lines in the end, or a sentence."""
    directory = copy_of(halted, tmp_path)
    lines = (directory / "rounds.jsonl").read_text().splitlines()
    for broken in (lines[:2], [lines[0], lines[1][:40], lines[2]], [lines[1], lines[2]], []):
        directory = copy_of(halted, tmp_path)
        (directory / "rounds.jsonl").write_text("".join(line + "\n" for line in broken))
        try:
            resume(directory)
        except UserError as error:
            assert "rounds.jsonl" in str(error)  # noqa: PT017  (either outcome is right)
        else:
            assert_same(directory, whole)


@pytest.mark.parametrize("garbage", [b"", b"{", b"null", b"[1]", b'"text"', b"\xff\xfe\x00", b"1\n2\n", b'{"a": 1}\n'])
@pytest.mark.parametrize("name", ["config.toml", "rounds.jsonl", "result.json", "environment.json", "events.jsonl"])
def test_garbage_in_any_file_of_a_run_is_one_sentence_at_most(
    whole: Path, halted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, garbage: bytes
) -> None:
    directory = copy_of(whole if name == "result.json" else halted, tmp_path)
    (directory / name).write_bytes(garbage)
    with bounded(20):  # an empty configuration is a valid one of 800 rounds, which is not this run
        code = invoke(["resume", str(directory), "--workers", "1"])
    said = sentences(capsys.readouterr().err)
    if code == 0:
        assert_same(directory, whole)
    else:
        assert code == 2
        assert len(said) == 1
        assert name in said[0]


# Full disks


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    with Zygote(tmp_path_factory.mktemp("zygote")) as running:
        yield running


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, zygote: Zygote) -> tuple[Path, Path, int]:
    """The directory of the reference run, its configuration, and how many steps on the disk it took."""
    folder = tmp_path_factory.mktemp("undisturbed")
    config = write_config("guarded", folder / "config.toml")
    ended = zygote.go_on(folder / "run", config)
    assert ended.code == 0
    return folder / "run", config, ended.steps


def full_then_room(zygote: Zygote, directory: Path, config: Path, reference: Path, **faults: object) -> str:
    """What went wrong, if anything did, when the disk is full for a while and then has room again."""
    ended = zygote.go_on(directory, config, **faults)
    said = sentences(ended.stderr)
    if ended.code not in (0, 2) or len(said) > (ended.code == 2) or "Traceback" in ended.stderr:
        return f"exit {ended.code}: {said[-1] if said else ''}"
    return ""


def then_resumed(zygote: Zygote, directory: Path, config: Path, reference: Path) -> str:
    again = zygote.go_on(directory, config)
    if again.code:
        return f"with room again, exit {again.code}: {again.stderr.splitlines()[-1]}"
    try:
        assert_same(directory, reference)
    except AssertionError as error:
        return f"with room again, other bits: {first_line(error)}"
    return ""


def test_a_disk_that_is_full_at_any_step(zygote: Zygote, undisturbed: tuple[Path, Path, int], tmp_path: Path) -> None:
    """A stub: from its n-th step on, everything the run tries to force to disk fails with ENOSPC."""
    reference, config, steps = undisturbed
    failures, tried = [], range(1, steps + 1) if FULL else range(3, steps, 60)
    for step in tried:
        directory = tmp_path / f"step-{step}"
        problem = full_then_room(zygote, directory, config, reference, full_at=step)
        problem = "; ".join(filter(None, [problem, then_resumed(zygote, directory, config, reference)]))
        failures += [f"full at step {step} of {steps}: {problem}"] if problem else []
    assert not failures, "\n".join(failures)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A real disk of a quarter of a megabyte, where mounting is permitted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], capture_output=True, check=False, timeout=20
    )
    if mounted.returncode:
        pytest.skip("mounting a tmpfs is not permitted here; the stub above stands in for it")
    try:
        yield disk
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True, timeout=20)


def test_a_disk_that_is_really_full(
    zygote: Zygote, undisturbed: tuple[Path, Path, int], small_disk: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reference, config, _ = undisturbed
    pages, failures = 64, []
    for free in range(2, pages, 1 if FULL else 16):
        directory, ballast = small_disk / "run", small_disk / "ballast"
        shutil.rmtree(directory, ignore_errors=True)
        ballast.write_bytes(bytes(4096 * (pages - free)))
        problem = full_then_room(zygote, directory, config, reference)
        ballast.unlink()
        problem = "; ".join(filter(None, [problem, then_resumed(zygote, directory, config, reference)]))
        failures += [f"{4 * free} KiB free: {problem}"] if problem else []
    assert not failures, "\n".join(failures)

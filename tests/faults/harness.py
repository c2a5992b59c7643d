"""What the fault tests share: small runs, the commands that start them, and what must come out the same."""

import faulthandler
import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from semifl import toml
from semifl.errors import RunStopped, UserError
from toys import KEPT, REFERENCE, toy_table

FULL = os.environ.get("SEMIFL_FAULTS") == "full"
TESTS = Path(__file__).parents[1]
TIMEOUT = 180  # seconds after which a process counts as hanging


def table(name: str, rounds: int = 4) -> dict[str, Any]:
    """A small run that keeps something everywhere: at the server, at the clients, in the guard."""
    toy = {**toy_table(**(REFERENCE if name == "reference" else KEPT)), "rounds": rounds}
    if name == "guarded":
        toy["guard"] = True
        toy["data"] = {**toy["data"], "labeled": 12, "validation": 0.5}
    return toy


def write_config(name: str, path: Path, rounds: int = 4) -> Path:
    path.write_text(toml.dumps(table(name, rounds)), encoding="utf-8")
    return path


def records(directory: Path) -> list[dict[str, Any]]:
    """What the promise covers of rounds.jsonl: everything but the seconds."""
    lines = (directory / "rounds.jsonl").read_text(encoding="utf-8").splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "seconds"} for line in lines]


def result(directory: Path) -> dict[str, Any]:
    content = json.loads((directory / "result.json").read_text(encoding="utf-8"))
    return {key: value for key, value in content.items() if not key.startswith("seconds")}


def made_at_the_end(directory: Path) -> set[str]:
    paths = [directory / "model.md", directory / "confusion.json", *(directory / "gallery").glob("*")]
    return {path.name for path in paths if path.is_file() and not path.name.startswith(".")}  # hidden: left by a kill


def assert_same(directory: Path, reference: Path) -> None:
    mine, theirs = records(directory), records(reference)
    assert [each["round"] for each in mine] == [each["round"] for each in theirs], "rounds are missing"
    for one, other in zip(mine, theirs, strict=True):
        differing = [key for key in other if one.get(key) != other[key]]
        assert one == other, f"round {other['round']} differs in {differing}"
    same = (directory / "model.safetensors").read_bytes() == (reference / "model.safetensors").read_bytes()
    assert same, "model.safetensors differs"
    assert result(directory) == result(reference), "result.json differs"
    assert made_at_the_end(directory) == made_at_the_end(reference), "the card or the gallery is not whole"


def events(directory: Path) -> list[str]:
    """The kinds of the events; a line that was cut off by a crash is left out."""
    kinds = []
    for line in (directory / "events.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            kinds.append(json.loads(line)["event"])
        except ValueError:
            continue
    return kinds


def environment() -> dict[str, str]:
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), str(TESTS)]))
    return {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}


def semifl(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "semifl", *map(str, arguments)]


def command(directory: Path, config: Path, workers: int) -> list[str]:
    """Start the run, or go on with it. One that was killed before config.toml existed has nothing to go on from."""
    if (directory / "config.toml").exists():
        return semifl("resume", directory, "--workers", workers)
    return semifl("run", config, "--out", directory, "--workers", workers)


def sentences(stderr: str) -> list[str]:
    """What a verb said beside warnings and the lines that tell how a run goes."""
    told = ("warning: ", "labels only", "training for ", "round ")
    return [line for line in stderr.splitlines() if not line.startswith(told)]


@contextmanager
def launched(arguments: list[str], stderr: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is ended by its id whatever happens."""
    with stderr.open("wb") as sink:
        process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=sink, env=environment())
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(timeout=TIMEOUT)


def complete(arguments: list[str], stderr: Path) -> float:
    """Run to the end, which must be a good one; the seconds it took."""
    began = time.monotonic()
    with launched(arguments, stderr) as process:
        code = process.wait(timeout=TIMEOUT)
    assert code == 0, stderr.read_text()
    return time.monotonic() - began


class Hang(Exception):
    """Something took far too long."""


@contextmanager
def bounded(seconds: int = 30) -> Iterator[None]:
    """Turn a hang into a failure."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise Hang(f"still busy after {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def only_user_errors() -> Iterator[None]:
    """Success or one sentence; anything else is a traceback that a person would see."""
    with bounded(), suppress(UserError, RunStopped):
        yield


def isolated(action: Callable[[], object]) -> int:
    """Do it in a forked process with 4 GB more memory than now: readers written in C can end the process itself.

    0: success or a UserError; 1: another exception; negative: the signal that ended it.
    """
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 30), used + (4 << 30)))
            faulthandler.disable()  # a crash is counted, not told
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(30)
            with suppress(UserError, RunStopped):
                action()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def make_odd(path: Path, kind: str) -> None:
    """Something that is no file a program should read to its end."""
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "zeros":
            path.symlink_to("/dev/zero")
        case "link to itself":
            path.symlink_to(path)
        case "link to a folder":
            path.symlink_to(path.parent)
        case "endless":  # four terabytes, of which none is on the disk
            with path.open("wb") as file:
                file.truncate(1 << 42)


@dataclass(frozen=True)
class Ended:
    """How a forked command ended: its exit code (negative: the signal), how many files it wrote, what it said."""

    code: int
    steps: int
    stderr: str

    @property
    def sentence(self) -> str:
        """The one line that a person reads; warnings come before it."""
        said = sentences(self.stderr)
        assert len(said) == 1, self.stderr
        return said[0]


class Zygote:
    """A process that has imported everything and forks for each command, so that a run starts in milliseconds."""

    def __init__(self, folder: Path) -> None:
        self._stderr = folder / "zygote-stderr"
        self._process = subprocess.Popen(
            [sys.executable, str(TESTS / "faults" / "zygote.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(),
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(timeout=TIMEOUT)
        self._process.stdout.close()

    def run(self, arguments: list[object], **faults: object) -> Ended:
        """`kill_at`, `full_at`: the step (a write, a flush, a rename, a removal) at which the fault happens.

        `seconds` and `memory` (in bytes, beyond what it has) are what the command may take.
        """
        order = {"arguments": [str(each) for each in arguments], "stderr": str(self._stderr), **faults}
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        return Ended(answer["code"], answer["steps"], self._stderr.read_text(errors="replace"))

    def go_on(self, directory: Path, config: Path, **faults: object) -> Ended:
        """As `command`, with one worker."""
        return self.run([*command(directory, config, 1)[3:]], **faults)

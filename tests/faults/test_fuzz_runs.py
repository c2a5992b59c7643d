"""Whatever lies in place of a file of a run directory, every verb ends in success or in one sentence.

A folder, a pipe, a device, a link to one, a file of endless size, depth or nonsense, several at once: no verb shows a
traceback, waits for ever or fills the memory, and none goes on with other bits. SEMIFL_FAULTS=full tries thousands.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from faults.harness import FULL, Ended, Zygote, assert_same, make_odd, sentences, table
from semifl.configuration.config import decode
from semifl.running.context import Silent
from semifl.running.loop import start

MEMORY = 3 << 30  # bytes beyond those of the process that a verb may take
KINDS: dict[str, Callable[[Path], None]] = {
    **{
        kind: partial(make_odd, kind=kind)
        for kind in ("folder", "pipe", "zeros", "link to itself", "link to a folder", "endless")
    },
    "nothing": lambda path: None,
    "text": lambda path: _put(path, b"neither JSON nor TOML nor tensors\n"),
    "deep JSON": lambda path: _put(path, b'{"round": 1, "a": ' + b"[" * 900 + b"]" * 900 + b"}\n"),
    "endless JSON": lambda path: _put(path, b'{"a": ' * 50_000),
    "deep TOML": lambda path: _put(path, b"a." * 700 + b"b = 1\n"),
    "endless TOML": lambda path: _put(path, b"a." * 100_000 + b"b = 1\n"),
    "wrong numbers": lambda path: _put(path, b'{"round": 1, "accuracy": "high", "rounds": [], "counts": 7}\n'),
    "huge numbers": lambda path: _put(path, b'{"round": 1, "accuracy": 1e999, "rounds": 1' + b"0" * 400 + b"}\n"),
}


class Interrupted(Exception):
    pass


class InterruptAfterThree(Silent):
    def round(self, record, best) -> None:
        if record["round"] == 3:
            raise Interrupted


def _put(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def configuration() -> dict:
    """With a validation part, so that a model is kept on the way, and with memory at the clients."""
    toy = table("paper")
    toy["data"] = {**toy["data"], "labeled": 12, "validation": 0.5}
    return toy


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("finished") / "run"
    start(decode(configuration()), directory)
    return directory


@pytest.fixture(scope="module")
def halted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("halted") / "run"
    with pytest.raises(Interrupted):
        start(decode(configuration()), directory, observer=InterruptAfterThree())
    return directory


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    with Zygote(tmp_path_factory.mktemp("zygote")) as running:
        yield running


def verbs(directory: Path) -> list[list[object]]:
    return [
        ["resume", directory, "--workers", 1],
        ["resume", directory, "--rounds", 5, "--workers", 1],
        ["show", directory],
        ["report", directory],
        ["compare", directory],
        ["predict", directory, directory / "gallery"],
        ["evaluate", directory],
        ["export", directory, "--to", "safetensors", "--out", directory / "copy.safetensors"],
        ["check", directory, "--reproduce", "--rounds", 1, "--workers", 1],
    ]


def places(directory: Path) -> list[str]:
    """Every file and folder of a run, by its name within it."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*"))


def replaced(directory: Path, name: str, kind: str) -> None:
    path = directory / name
    if any(each.is_symlink() or not each.is_dir() for each in path.parents if each.is_relative_to(directory)):
        return  # its folder has been replaced before
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    KINDS[kind](path)


def fault(ended: Ended) -> str:
    """What is wrong with the way a verb ended, if anything is."""
    said = sentences(ended.stderr)
    if ended.code not in (0, 1, 2):
        return f"exit {ended.code}: {said[-1] if said else ''}"
    if len(said) > 1 or len(ended.stderr) > 3000:
        return f"exit {ended.code} with {len(said)} lines: {ended.stderr[:300]}"
    return ""


def tried(zygote: Zygote, run: Path, names: dict[str, str], verb: int, reference: Path, folder: Path) -> str:
    shutil.rmtree(folder, ignore_errors=True)
    directory = Path(shutil.copytree(run, folder))
    for name, kind in names.items():
        replaced(directory, name, kind)
    arguments = verbs(directory)[verb]
    ended = zygote.run(arguments, memory=MEMORY, seconds=60)
    problem = fault(ended)
    # Only what the verb itself made is compared: the files of a finished run are not looked at again.
    if not problem and verb == 0 and ended.code == 0 and not (run / "result.json").exists():
        try:
            assert_same(directory, reference)
        except (AssertionError, OSError, ValueError) as error:
            problem = f"other bits: {str(error)[:200]}"
    return f"{arguments[0]} ({verb}) with {names}: {problem}" if problem else ""


def chosen(cases: list, name: str) -> list:
    return random.Random(name).sample(cases, 1500 if FULL else 40)


@pytest.mark.parametrize("state", ["finished", "halted"])
def test_anything_in_place_of_a_file(zygote: Zygote, finished: Path, halted: Path, tmp_path: Path, state: str) -> None:
    run = finished if state == "finished" else halted
    cases = [(name, kind, verb) for name in places(run) for kind in KINDS for verb in range(len(verbs(run)))]
    problems = [
        tried(zygote, run, {name: kind}, verb, finished, tmp_path / "copy") for name, kind, verb in chosen(cases, state)
    ]
    assert not list(filter(None, problems)), "\n".join(filter(None, problems))


@pytest.mark.parametrize("state", ["finished", "halted"])
def test_several_damages_at_once(zygote: Zygote, finished: Path, halted: Path, tmp_path: Path, state: str) -> None:
    run, chance, problems = finished if state == "finished" else halted, random.Random(state), []
    for _ in range(500 if FULL else 10):
        damages = {name: chance.choice(list(KINDS)) for name in chance.sample(places(run), chance.randint(2, 5))}
        verb = chance.randrange(len(verbs(run)))
        problems.append(tried(zygote, run, damages, verb, finished, tmp_path / "copy"))
    assert not list(filter(None, problems)), "\n".join(filter(None, problems))

"""Runs that are killed, at any moment and again and again, end with the bits of the run that nobody disturbed.

Three ways of killing: a real command by SIGKILL after a random time or at a random moment after something appeared in
its directory; a forked command that kills itself at its n-th step on the disk, for every n; the workers of a run.
"""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from faults.harness import FULL, TIMEOUT, Zygote, assert_same, command, complete, events, launched, write_config

NAMES = ("paper", "reference", "guarded")
LANDMARKS = (  # what a killer may wait for before it strikes
    "config.toml",
    "checkpoint/labels_only/000002.safetensors",
    "checkpoint/memory",
    "checkpoint/000001.safetensors",
    "checkpoint/000003.safetensors",
    "rounds.jsonl",
    "model.safetensors",
    "result.json",
)


class Reference(NamedTuple):
    directory: Path
    config: Path
    seconds: float


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reference]:
    """The undisturbed run of each kind, made when first asked for."""
    folder = tmp_path_factory.mktemp("undisturbed")
    known: dict[str, Reference] = {}

    def find(name: str) -> Reference:
        if name not in known:
            config = write_config(name, folder / f"{name}.toml")
            seconds = complete(command(folder / name, config, 1), folder / "stderr")
            known[name] = Reference(folder / name, config, seconds)
        return known[name]

    return find


@pytest.fixture(scope="module")
def zygote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Zygote]:
    with Zygote(tmp_path_factory.mktemp("zygote")) as running:
        yield running


def strike(directory: Path, whole: Reference, workers: int, chance: random.Random, stderr: Path) -> bool:
    """Start or resume, and kill at a random moment; whether it was still running then."""
    landmark = chance.choice([None, *LANDMARKS])
    present = landmark is not None and (directory / landmark).exists()
    delay = chance.uniform(0, whole.seconds) if landmark is None or present else chance.uniform(0, 0.1)
    with launched(command(directory, whole.config, workers), stderr) as process:
        deadline = time.monotonic() + TIMEOUT
        while landmark and not present and process.poll() is None and not (directory / landmark).exists():
            assert time.monotonic() < deadline, f"{landmark} never appeared"
            time.sleep(0.001)
        time.sleep(delay)
        ended = process.poll()
        if ended is None:
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=TIMEOUT)
    assert ended in (None, 0), stderr.read_text()
    assert "Traceback" not in stderr.read_text()
    return ended is None


def plans() -> list[tuple[str, int, int]]:
    """Kind of run, workers, seed: up to three kills each, 63 in the full suite."""
    if not FULL:
        return [("guarded", 1, 5)]
    return [(name, 2 if seed % 4 == 3 else 1, seed) for name in NAMES for seed in range(7)]


@pytest.mark.parametrize(("name", "workers", "seed"), plans())
def test_a_run_killed_at_random_moments_ends_with_the_same_bits(
    reference: Callable[[str], Reference], tmp_path: Path, name: str, workers: int, seed: int
) -> None:
    whole, directory, chance = reference(name), tmp_path / "run", random.Random(f"{name} {seed}")
    wanted = 3 if FULL else 2
    kills = sum(strike(directory, whole, workers, chance, tmp_path / "stderr") for _ in range(wanted))
    print(f"kills: {kills}")
    complete(command(directory, whole.config, workers), tmp_path / "stderr")
    assert_same(directory, whole.directory)


def chosen_steps(name: str, total: int) -> list[int]:
    if FULL:
        return list(range(1 + len(name) % 2, total + 1, 2))
    return sorted(random.Random(name).sample(range(1, total + 1), 5))


@pytest.mark.parametrize("torn", [False, True] if FULL else [True])
@pytest.mark.parametrize("name", NAMES if FULL else ["reference"])
def test_a_run_killed_at_any_step_on_the_disk_ends_with_the_same_bits(
    zygote: Zygote, tmp_path: Path, name: str, torn: bool
) -> None:
    """Torn: what had not been forced to disk is cut off at a random byte, as after a power failure."""
    config = write_config(name, tmp_path / "config.toml")
    whole = zygote.go_on(tmp_path / "whole", config)
    assert whole.code == 0, whole.stderr
    failures = []
    steps = chosen_steps(name, whole.steps)
    for step in steps:
        directory = tmp_path / f"step-{step}"
        assert zygote.go_on(directory, config, kill_at=step, torn=torn).code == -signal.SIGKILL
        ended = zygote.go_on(directory, config)
        try:
            assert ended.code == 0
            assert_same(directory, tmp_path / "whole")
        except AssertionError as error:
            failures.append(f"killed at step {step} of {whole.steps}: {ended.stderr or error}")
    print(f"kills: {len(steps)}")
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("name", NAMES if FULL else ["paper"])
def test_a_run_killed_at_every_few_steps_still_gets_to_its_end(zygote: Zygote, tmp_path: Path, name: str) -> None:
    """Each resumption lives a little longer than the one before, and none loses what the others finished."""
    config = write_config(name, tmp_path / "config.toml")
    whole = zygote.go_on(tmp_path / "whole", config)
    kills, patience = 0, 45
    while (ended := zygote.go_on(tmp_path / "run", config, kill_at=patience)).code == -signal.SIGKILL:
        kills, patience = kills + 1, patience + (0 if FULL else 10)
        assert kills < 60, "the run does not get any further"
    print(f"kills: {kills}")
    assert ended.code == 0, ended.stderr
    assert whole.code == 0
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_a_run_given_more_rounds_and_killed_can_be_resumed(zygote: Zygote, tmp_path: Path) -> None:
    config = write_config("paper", tmp_path / "config.toml")
    directory = tmp_path / "run"
    assert zygote.go_on(directory, config).code == 0
    # An undisturbed extension of the same run is the reference.
    assert zygote.go_on(tmp_path / "whole", config).code == 0
    extended = zygote.run(["resume", tmp_path / "whole", "--rounds", 6, "--workers", 1])
    assert extended.code == 0
    failures = []
    for step in range(1, extended.steps, 3 if FULL else 40):
        shutil.rmtree(tmp_path / "again", ignore_errors=True)
        shutil.copytree(directory, tmp_path / "again")
        killed = zygote.run(["resume", tmp_path / "again", "--rounds", 6, "--workers", 1], kill_at=step)
        assert killed.code == -signal.SIGKILL
        # Before the new number of rounds is on disk the run is the finished one of four: it must be asked again.
        asks = [] if "rounds = 6" in (tmp_path / "again/config.toml").read_text() else ["--rounds", 6]
        ended = zygote.run(["resume", tmp_path / "again", *asks, "--workers", 1])
        try:
            assert ended.code == 0
            assert_same(tmp_path / "again", tmp_path / "whole")
        except AssertionError as error:
            failures.append(f"killed at step {step}: {ended.stderr or error}")
    assert not failures, "\n".join(failures)


def children(pid: int) -> list[int]:
    """All descendants of a process, by /proc."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:  # gone meanwhile
            continue
        if parent == pid:
            found += [int(path.parent.name), *children(int(path.parent.name))]
    return found


def workers_of(pid: int) -> list[int]:
    """The processes that train: those whose parent is the fork server, which is itself a child of the run."""
    return [worker for server in children(pid) for worker in children(server) if worker != server]


@pytest.mark.parametrize("name", NAMES if FULL else ["guarded"])
def test_killed_workers_are_replaced_and_the_bits_stay(
    reference: Callable[[str], Reference], tmp_path: Path, name: str
) -> None:
    whole, directory, stderr = reference(name), tmp_path / "run", tmp_path / "stderr"
    chance, kills = random.Random(name), 0
    with launched(command(directory, whole.config, 2), stderr) as process:
        while process.poll() is None and kills < 2:
            # Only while rounds are played: a worker that is killed when idle may never be missed.
            lines = directory / "rounds.jsonl"
            if not lines.exists() or len(lines.read_text().splitlines()) < 1 + kills:
                time.sleep(0.001)
                continue
            if workers := workers_of(process.pid):
                os.kill(chance.choice(workers), signal.SIGKILL)
                kills += 1
        assert process.wait(timeout=TIMEOUT) == 0, stderr.read_text()
    assert_same(directory, whole.directory)
    if kills:  # the last may come too late for anybody to wait for that worker
        assert "worker lost" in events(directory)
    print(f"workers killed: {kills}")

"""Memory is what the machine, a limit or a container leaves, whichever is least."""

import resource
from pathlib import Path

import pytest

from semifl import machine


def test_it_is_no_more_than_the_machine_has() -> None:
    total = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemTotal"))
    assert 0 < machine.memory() <= 1024 * int(total.split()[1])


def test_a_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1000, 2000))
    assert machine.memory() == 1000


def test_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "memory.max").write_text("2000\n")
    (tmp_path / "unlimited").write_text("max\n")
    paths = tuple(str(tmp_path / name) for name in ("memory.max", "unlimited", "missing"))
    monkeypatch.setattr(machine, "CONTAINER", paths)
    assert machine.memory() == 2000

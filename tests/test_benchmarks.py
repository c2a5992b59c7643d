"""Every benchmark of `make bench` finds what it imports; whether it is fast is its own business."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOAD = "import runpy, sys; sys.path.insert(0, 'benchmarks'); [runpy.run_path(path) for path in sys.argv[1:]]"


def test_every_benchmark_loads() -> None:
    (names,) = re.findall(r"for name in ([\w ]+); do .*benchmarks/", (ROOT / "Makefile").read_text())
    paths = [f"benchmarks/{name}.py" for name in names.split()]
    assert len(paths) == 7
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD, *paths], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert loaded.returncode == 0, loaded.stderr


def test_what_workers_get_from_a_benchmark_lies_in_a_module() -> None:
    """A worker process knows nothing of the script that was started: a method defined there cannot reach it."""
    scripts = [path for path in sorted((ROOT / "benchmarks").glob("*.py")) if "__main__" in path.read_text()]
    assert len(scripts) >= 7
    assert [path.name for path in scripts if re.search(r"^class ", path.read_text(), re.MULTILINE)] == []

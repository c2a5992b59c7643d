"""Golden bits: a change that should not move numbers must leave these alone. They pin behaviour; they prove nothing.

Bits hold per kind of CPU and per torch and NumPy version, so they are keyed by all three. A change that means to move
numbers says so in CHANGELOG.md under "Numbers" and renews them: `python tests/golden/test_golden.py`.
"""

import json
import platform
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy
import pytest
import torch

from semifl.configuration.config import decode, override
from semifl.running.loop import start
from semifl.studies.presets import find

GOLDEN = Path(__file__).with_name("golden.json")
SMALL = ["rounds=2", "labels_only=false"]
CASES = {
    "paper": SMALL,
    "reference": [
        *SMALL,
        "method.name=semifl_released",
    ],
}


def key() -> str:
    # Two makers' processors with the same instructions still take different paths through the libraries.
    maker = torch.cpu.get_capabilities().get("cpu_name", "")
    cpu = f"{platform.machine()} {maker} {torch.backends.cpu.get_cpu_capability()}"
    return f"{cpu} torch {torch.__version__} numpy {numpy.__version__}"


def digests(case: str, directory: Path) -> list[str]:
    start(decode(override(find("digits").table, CASES[case])), directory)
    return [json.loads(line)["digest"] for line in (directory / "rounds.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("case", CASES)
def test_bits_are_what_they_were(case: str, tmp_path: Path) -> None:
    known = json.loads(GOLDEN.read_text())
    if key() not in known:
        pytest.skip(f"no golden bits for {key()}: make some with 'python {Path(__file__).name}'")
    assert digests(case, tmp_path / "run") == known[key()][case]


if __name__ == "__main__":
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    with TemporaryDirectory() as folder:
        golden[key()] = {case: digests(case, Path(folder) / case) for case in CASES}
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")

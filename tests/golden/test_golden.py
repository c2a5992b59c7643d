"""Golden results of two rounds of every method: a change that should not move numbers must leave these alone.

They pin behavior and prove nothing. Bits hold per kind of CPU and per torch and NumPy version, so they are keyed by all
three; elsewhere the numbers of the rounds must agree within a tolerance. A change that means
to move numbers says so in CHANGELOG.md under "Numbers" and renews both: `python tests/golden/test_golden.py`.
"""

import json
import platform
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy
import pytest
import torch

from semifl import registry
from semifl.configuration.config import METHODS, decode, override
from semifl.running.loop import start
from semifl.studies.presets import find
from toys import method_table

GOLDEN = Path(__file__).with_name("golden.json")
CASES = ["digits", *registry.names(METHODS)]
NUMBERS = ("accuracy", "loss", "server_loss", "client_loss", "update_norm")
RELATIVE = 0.05  # In two rounds rounding moves a loss by 1e-4 at most; another algorithm moves it by far more.
ABSOLUTE = 6.0  # One of the eighteen test pictures, in percent.


def key() -> str:
    # Two makers' processors with the same instructions still take different paths through the libraries.
    maker = torch.cpu.get_capabilities().get("cpu_name", "")
    cpu = f"{platform.machine()} {maker} {torch.backends.cpu.get_cpu_capability()}"
    return f"{cpu} torch {torch.__version__} numpy {numpy.__version__}"


def config_of(case: str) -> dict:
    if case == "digits":  # the demo, with a real network, its own views and confident clients in the second round
        return override(find("digits").table, ["rounds=2", "labels_only=false", "method.threshold=0.12"])
    return method_table(case)


def rounds_of(case: str, directory: Path) -> list[dict]:
    start(decode(config_of(case)), directory)
    return [json.loads(line) for line in (directory / "rounds.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("case", CASES)
def test_results_are_what_they_were(case: str, tmp_path: Path) -> None:
    golden = json.loads(GOLDEN.read_text())
    rounds = rounds_of(case, tmp_path / "run")
    if key() in golden["bits"]:
        assert [each["digest"] for each in rounds] == golden["bits"][key()][case]
    for found, expected in zip(rounds, golden["numbers"][case], strict=True):
        for name, value in expected.items():
            assert found[name] == (value and pytest.approx(value, rel=RELATIVE, abs=ABSOLUTE * (name == "accuracy")))


if __name__ == "__main__":
    golden = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {"bits": {}, "numbers": {}}
    with TemporaryDirectory() as folder:
        found = {case: rounds_of(case, Path(folder) / case) for case in CASES}
    golden["bits"][key()] = {case: [each["digest"] for each in rounds] for case, rounds in found.items()}
    golden["numbers"] = {
        case: [{name: each[name] for name in NUMBERS} for each in rounds] for case, rounds in found.items()
    }
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")

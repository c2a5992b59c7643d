"""Real scripts in processes of their own: without a guard, with classes of their own, and for a type checker."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]
SCRIPT = """
from pathlib import Path

with open("starts.txt", "a") as file:
    file.write("started\\n")

import torch
from torch import nn
from semifl import FederatedData, SemiFL, train

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))

images, labels = torch.randint(256, (8, 3, 8, 8)).to(torch.uint8), torch.arange(8) % 2
data = FederatedData(labeled=(images, labels), clients=[images, images], test=(images, labels))
method = SemiFL(threshold=0.0, activity_rate=1.0, client_epochs=1, server_epochs=1)
options = dict(on=data, rounds=1, workers=2, labels_only=False, on_round=lambda record: print(Path(__file__).name))

torchs_own = nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
train(method, model=torchs_own, out="torchs_own", **options)
train(method, model=Net(), out="module", **options)
train(method, model=Net, out="factory", **options)
"""
TYPED = """
from semifl import FederatedData, Result, SemiFL, train

def run(data: FederatedData) -> float:
    result: Result = train(SemiFL(threshold=0.9), model="cnn", on=data, rounds=1, workers=2, out="runs/first")
    wrong: str = result.accuracy
    return result.accuracy
"""


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "script.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    return subprocess.run(
        [sys.executable, "script.py"], cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )


def test_a_script_without_a_guard_trains_once_with_workers(tmp_path: Path) -> None:
    done = run(SCRIPT, tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "starts.txt").read_text() == "started\n", "the script ran again in a worker"
    assert done.stdout.splitlines() == ["script.py"] * 3
    # What the script defines itself cannot be told to workers: one of them does all, and a warning says so.
    assert done.stderr.count("one worker instead of 2") == 2
    assert "Net is defined in the script or notebook itself" in done.stderr
    assert 'name = "python:Net"' in (tmp_path / "factory/config.toml").read_text()


def test_the_public_names_are_typed(tmp_path: Path) -> None:
    (tmp_path / "typed.py").write_text(TYPED)
    mypy = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(TESTS.parent / ".mypy_cache")]
    done = subprocess.run([*mypy, str(tmp_path / "typed.py")], cwd=TESTS.parent, capture_output=True, text=True)
    (complaint,) = [line for line in done.stdout.splitlines() if "typed.py" in line]
    assert 'expression has type "float", variable has type "str"' in complaint


def test_importing_semifl_does_not_import_torch() -> None:
    code = "import sys, semifl; semifl.UserError; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

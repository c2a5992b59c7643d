"""What `import semifl` does to a fresh process."""

import subprocess
import sys

import pytest

import semifl

# The variable must be set when torch is imported, for it is read then; a finder of modules sees that moment.
PROGRAM = """
import os, sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print(os.environ.get("GOMP_SPINCOUNT"))
sys.meta_path.insert(0, Watch())
from semifl import {name}
import torch
"""


@pytest.mark.parametrize("name", semifl.__all__)
def test_threads_spin_briefly_whatever_is_imported_first(name: str) -> None:
    program = PROGRAM.format(name=name)
    environment = {"PATH": "/usr/bin", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == ["10000"]


def test_what_the_user_has_set_stands() -> None:
    program = PROGRAM.format(name="SemiFL")
    environment = {"PATH": "/usr/bin", "PYTHONPATH": ":".join(sys.path), "GOMP_SPINCOUNT": "7"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout.split() == ["7"]

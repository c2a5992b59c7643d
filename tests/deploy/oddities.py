"""A federation of real processes of which some are odd: of another version, or of ill will."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from deploy.net import OPERATOR, Net
from federated_pictures import make_federation, run_table
from semifl import toml


class Oddities(Net):
    """Machines whose Python runs a few lines of ill will, or of another version, before anything else."""

    odd: dict[str, str]

    def start(self, name: str, *words: str) -> None:
        code, before = self.odd.get(name, ""), os.environ.get("PYTHONPATH")
        if code:
            folder = self.folder / f"odd-{name}"
            folder.mkdir(exist_ok=True)
            (folder / "sitecustomize.py").write_text(code)
            os.environ["PYTHONPATH"] = str(folder)
        try:
            super().start(name, *words)
        finally:
            os.environ.pop("PYTHONPATH", None)
            if before is not None:
                os.environ["PYTHONPATH"] = before


def federation(folder: Path, sites: tuple[str, ...], **odd: str) -> Iterator[Oddities]:
    before = os.environ.get("SEMIFL_DATA")  # of a federation around this one
    os.environ["SEMIFL_DATA"] = str(folder / "cache")
    pictures = make_federation(folder / "pictures", sites)
    net = Oddities(folder, sites)
    net.odd = {name.replace("_", "-"): code for name, code in odd.items()}
    try:
        net.provision()
        net.start_all(pictures)
        yield net
    finally:
        net.close()
        os.environ.pop("SEMIFL_DATA", None)
        if before is not None:
            os.environ["SEMIFL_DATA"] = before


def run_of(
    net: Net, name: str, rounds: int, *words: str, operator: str = OPERATOR, **deploy: object
) -> subprocess.Popen[str]:
    config = net.folder / f"{name}.toml"
    config.write_text(toml.dumps({**run_table(rounds=rounds, client_epochs=2, threshold=0.0), "deploy": deploy}))
    return net.run(config, "--name", name, *words, operator=operator)

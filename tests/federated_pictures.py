"""Real picture files of a small federation: a hub with a few labels, three sites, and the same for a simulation."""

from pathlib import Path

import numpy as np
from PIL import Image

COLOURS = {"blue": (40, 40, 220), "green": (40, 220, 40), "red": (220, 40, 40)}
SITES = ("clinic-a", "clinic-b", "clinic-c")


def paint(folder: Path, colour: tuple[int, int, int], count: int, seed: int) -> None:
    """`count` noisy pictures of one colour as PNG files."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for number in range(count):
        noise = rng.integers(-60, 61, (10, 8, 3))
        Image.fromarray((np.array(colour) + noise).clip(0, 255).astype(np.uint8)).save(folder / f"{seed}-{number}.png")


def make_federation(root: Path, sites: tuple[str, ...] = SITES, pictures: int = 6) -> Path:
    """labeled/, test/ and clients/<site>/ below `root`; a hub uses the first two, each site one of the last."""
    for seed, (name, colour) in enumerate(COLOURS.items()):
        paint(root / "labeled" / name, colour, 2, seed)
        paint(root / "test" / name, colour, 4, 10 + seed)
        for number, site in enumerate(sites):
            paint(root / "clients" / site, colour, pictures, 100 + 10 * number + seed)
    return root


def run_table(rounds: int = 3, **method: object) -> dict:
    """A run's file for these pictures; the clients' momentum is kept, so that sites have something to remember."""
    return {
        "rounds": rounds,
        "threads": 1,
        "labels_only": False,
        "data": {"size": 8},
        "model": {"name": "cnn", "width": 4},
        "method": {
            "activity_rate": 1.0,
            "threshold": 0.4,
            "client_epochs": 2,
            "server_epochs": 2,
            "server_batch": 4,
            **({"name": "semifl_released", "statistics": "server"} | method),
        },
    }

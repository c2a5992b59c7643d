"""What `precision = "fp16"` costs in accuracy: the same run of digits with packets in both precisions, seed by seed.

Hub and five sites exchange real packets in this process; the pictures are scikit-learn's digits. Prints one JSON line
per seed and one with the mean of the differences and its 95 % interval.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from statistics import mean, stdev

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from PIL import Image
from scipy.stats import t
from sklearn.datasets import load_digits

from by_hand import ByHand
from semifl.deploy.hub import Hub, run_federation
from semifl.deploy.policy import Policy
from semifl.deploy.site import Site
from semifl.running.context import Silent

SITES = tuple(f"site-{number}" for number in range(5))
SEEDS, ROUNDS = 5, 20


def write_pictures(root: Path) -> None:
    """100 labels at the hub, 400 test pictures, and the rest in turn to the sites."""
    digits = load_digits()
    counts: dict[int, int] = {}
    for number, (picture, label) in enumerate(zip(digits.images, digits.target, strict=True)):
        seen = counts[int(label)] = counts.get(int(label), 0) + 1
        folder = root / "labeled" / str(label) if seen <= 10 else root / "test" / str(label)
        if seen > 50:
            folder = root / "clients" / SITES[number % len(SITES)]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray((picture * 255 / 16).astype("uint8")).save(folder / f"{number:04d}.png")


def table(seed: int, precision: str) -> dict:
    return {
        "seed": seed,
        "rounds": ROUNDS,
        "labels_only": False,
        "data": {"size": 8, "flip": False, "channels": "grey"},
        "model": {"name": "cnn", "width": 16},
        "method": {"name": "semifl", "activity_rate": 1.0, "threshold": 0.8, "client_epochs": 2},
        "deploy": {"precision": precision},
    }


def accuracy(root: Path, folder: Path, seed: int, precision: str) -> float:
    sites = {
        name: Site(name, root / "clients" / name, None, Policy(), folder / name, trains_apart=False) for name in SITES
    }
    hub = Hub(root, folder / "runs", SITES)
    return float(run_federation(hub, precision, table(seed, precision), ByHand(sites), Silent())["accuracy"])


def main() -> None:
    differences = []
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "pictures"
        write_pictures(root)
        for seed in range(SEEDS):
            scores = {
                precision: accuracy(root, Path(folder) / f"{precision}-{seed}", seed, precision)
                for precision in ("fp32", "fp16")
            }
            differences.append(scores["fp16"] - scores["fp32"])
            print(json.dumps({"benchmark": "precision", "seed": seed, **scores}), flush=True)
    half = float(t.ppf(0.975, SEEDS - 1)) * stdev(differences) / SEEDS**0.5
    print(json.dumps({"benchmark": "precision", "fp16_less_fp32": round(mean(differences), 2), "±": round(half, 2)}))


if __name__ == "__main__":
    main()

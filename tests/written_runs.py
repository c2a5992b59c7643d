"""Run directories written by hand, so that a report can be tested on any course of events without training."""

import json
from pathlib import Path
from typing import Any

from PIL import Image

CLIENTS, CLASSES = 6, 3
BINS = [
    {"pictures": 10, "confidence": 60.0, "accuracy": 70.0},
    {"pictures": 20, "confidence": 95.0, "accuracy": 90.0},
]


def round_line(index: int, **changes: Any) -> dict[str, Any]:
    """A round in which four of six clients are asked, and all is well."""
    cohort = sorted({(index + step) % CLIENTS for step in range(4)})
    line = {
        "round": index,
        "accuracy": 50.0 + index,
        "balanced_accuracy": 50.0 + index,
        "auc": 70.0 + index,
        "f1": 40.0 + index,
        "loss": 2.0 / index,
        "server_loss": 1.0 / index,
        "client_loss": 3.0 / index,
        "cohort": cohort,
        **{outcome: [] for outcome in ("abstained", "failed", "late", "rejected", "alerts")},
        "label_ratio": 0.5,
        "mean_confidence": 0.8,
        "pseudo_accuracy": 70.0,
        "confident_accuracy": 90.0,
        "agreement": 0.9,
        "class_histogram": [30, 30, 40],
        "confidence_histograms": [[0, 0, 0, 0, 0, 0, 0, 0, 5, 15] for _ in cohort],
        "update_norm": 1.0 / index,
        "bytes_up": 10**6,
        "bytes_down": 2 * 10**6,
        "seconds": {"server": 0.2, "clients": 0.5, "test": 0.1, "total": 1.0},
    }
    return line | changes


def write_run(path: Path, lines: list[dict[str, Any]], seed: int = 0, done: bool = True, **result: Any) -> Path:
    """A run directory of these rounds; `result` changes single values of the outcome."""
    path.mkdir(parents=True)
    settings = 'threshold = 0.95\nserver_epochs = 5\nname = "semifl"\n'
    data = f'[data]\nname = "toys"\nclients = {CLIENTS}\n'
    (path / "config.toml").write_text(f"seed = {seed}\nrounds = {len(lines)}\n{data}[method]\n{settings}")
    (path / "environment.json").write_text(json.dumps({"semifl": "0.1.0", "command": ["semifl", "run", "toys"]}))
    (path / "rounds.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if done:
        _finish(path, len(lines), result)
    return path


def _finish(path: Path, rounds: int, changes: dict[str, Any]) -> None:
    outcome = {"method": "semifl", "dataset": "toys", "seed": 0, "rounds": rounds, "seconds": 10.0}
    outcome |= {"accuracy": 80.0, "balanced_accuracy": 80.0, "best_accuracy": 80.0, "labels_only_accuracy": 60.0}
    outcome |= {"auc": 90.0, "labels_only_auc": 85.0, "best_auc": 90.0, "f1": 75.0, "calibration_error": 5.0}
    outcome |= {"best_round": rounds + 1, "best_test_accuracy": 80.0, "best_test_round": rounds + 1}
    (path / "result.json").write_text(json.dumps(outcome | changes))
    world = {"class_names": ["red", "green", "blue"], "server_classes": [4, 4, 4], "client_pictures": [20] * CLIENTS}
    (path / "world.json").write_text(json.dumps(world | {"sites": []}))
    (path / "confusion.json").write_text(
        json.dumps({"counts": [[9, 1, 0], [0, 10, 0], [3, 0, 7]], "reliability": BINS})
    )
    (path / "gallery").mkdir()
    views = ["red: as it is", "red: weak view", "green: as it is", "green: weak view"]
    sheets = {"views": (views, 2), "confident": (["red, 99.0 %; client 1"], 12), "mistakes": ([], 12)}
    about = [
        {"name": name, "side": 8, "across": across, "captions": captions} for name, (captions, across) in sheets.items()
    ]
    Image.new("RGB", (16, 16), (200, 20, 20)).save(path / "gallery/views.png")
    Image.new("RGB", (96, 8), (20, 20, 200)).save(path / "gallery/confident.png")
    (path / "gallery/gallery.json").write_text(json.dumps({"round": rounds + 1, "galleries": about}))

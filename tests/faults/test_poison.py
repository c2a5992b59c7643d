"""The server is never worse off, whatever three of ten clients send: measured on digits with 200 labels.

Every figure is printed as a JSON line (pytest -s): poison, aggregation, guard, accuracies over the seeds.
"""

import json
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch

from faults.harness import FULL, records
from poison import PoisonedSemiFL
from semifl.configuration.config import decode
from semifl.randomness import Seed
from semifl.running.loop import start
from toys import toy_table

POISONS = ("none", "random", "sign", "labels", "nan")
AGGREGATIONS = ("mean", "clipped", "median", "trimmed")
SEEDS = range(5)
full_only = pytest.mark.skipif(not FULL, reason="takes minutes: SEMIFL_FAULTS=full")


def table(poison: str, seed: int, guard: bool, aggregation: str = "mean") -> dict[str, Any]:
    return {
        "seed": seed,
        "rounds": 12,
        "threads": 1,
        "guard": guard,
        "labels_only": guard,
        "data": {"name": "digits", "labeled": 200, "clients": 10, "validation": 0.2},
        "model": {"name": "wide_resnet", "depth": 10, "width": 1},
        "method": {
            "name": "poison:PoisonedSemiFL",
            "poison": poison,
            "activity_rate": 0.5,
            "threshold": 0.7,
            "client_epochs": 2,
            "server_epochs": 2,
            "aggregation": aggregation,
        },
    }


def measure(folder: Path, poison: str, guard: bool, aggregation: str = "mean", seeds: range = SEEDS) -> dict[str, Any]:
    """The accuracies over the seeds, told on standard output."""
    results = []
    for seed in seeds:
        directory = folder / f"{poison}-{aggregation}-{guard}-{seed}"
        results.append(start(decode(table(poison, seed, guard, aggregation)), directory))
    accuracies = [result["accuracy"] for result in results]
    figures = {
        "poison": poison,
        "aggregation": aggregation,
        "guard": guard,
        "seeds": len(seeds),
        "accuracy": round(statistics.mean(accuracies), 2),
        "each": [round(accuracy, 2) for accuracy in accuracies],
    }
    if guard:
        alone = [result["labels_only_accuracy"] for result in results]
        figures |= {
            "labels_only": round(statistics.mean(alone), 2),
            "labels_only_each": [round(accuracy, 2) for accuracy in alone],
            "kept": [result["guard"]["kept"] for result in results],
            "fallbacks": [result["guard"]["fallbacks"] for result in results],
        }
    print(json.dumps(figures), flush=True)
    return figures


@full_only
@pytest.mark.parametrize("poison", POISONS)
def test_a_guarded_run_does_not_end_below_labels_only_by_more_than_a_point(poison: str, tmp_path: Path) -> None:
    figures = measure(tmp_path, poison, guard=True)
    assert figures["accuracy"] >= figures["labels_only"] - 1
    if poison == "nan":
        bad = {client for client in range(10) if PoisonedSemiFL().is_poisoned(Seed(0, ("client", client)))}
        for record in records(tmp_path / "nan-mean-True-0"):
            assert record["rejected"] == sorted(bad & set(record["cohort"]))


@full_only
@pytest.mark.parametrize("poison", POISONS)
def test_robust_aggregation_without_a_guard_is_measured(poison: str, tmp_path: Path) -> None:
    """Figures alone: what each kind of aggregation makes of each poison."""
    for aggregation in AGGREGATIONS:
        measure(tmp_path, poison, guard=False, aggregation=aggregation, seeds=range(2))


def test_clients_that_send_nan_are_rejected_by_name_and_no_poison_is_semifl_itself(tmp_path: Path) -> None:
    toy = toy_table(threshold=0.0)
    start(decode(toy), tmp_path / "plain")
    toy["method"] |= {"name": "poison:PoisonedSemiFL", "poisoned": 0.5}
    start(decode(toy), tmp_path / "none")
    assert records(tmp_path / "none") == records(tmp_path / "plain")
    toy["method"] |= {"poison": "nan"}
    start(decode(toy), tmp_path / "nan")
    bad = [client for client in range(4) if PoisonedSemiFL(poisoned=0.5).is_poisoned(Seed(0, ("client", client)))]
    assert 1 <= len(bad) <= 3
    seen = [client for record in records(tmp_path / "nan") for client in record["rejected"]]
    assert seen
    for record in records(tmp_path / "nan"):
        assert record["rejected"] == [client for client in record["cohort"] if client in bad]
        assert ("rejected" in record["alerts"]) == bool(record["rejected"])


def test_a_flipped_update_goes_five_times_as_far_the_other_way() -> None:
    sent, change = {"w": torch.tensor([1.0, 2.0])}, {"w": torch.tensor([0.5, -1.0])}
    assert PoisonedSemiFL(poison="sign").spoil(change, sent, Seed(0))["w"].tolist() == [-2.5, 5.0]


def test_the_share_of_poisoned_clients_holds_among_ten() -> None:
    for seed in SEEDS:
        bad = [PoisonedSemiFL().is_poisoned(Seed(seed, ("round", 3, "client", client))) for client in range(10)]
        assert 2 <= sum(bad) <= 4

"""Every benchmark of `make bench` finds what it imports; whether it is fast is its own business."""

import json
import re
import subprocess
import sys
from pathlib import Path

from semifl.models.fast_cnn import FastCnn

ROOT = Path(__file__).parent.parent
LOAD = "import runpy, sys; sys.path.insert(0, 'benchmarks'); [runpy.run_path(path) for path in sys.argv[1:]]"


def test_every_benchmark_loads() -> None:
    (names,) = re.findall(r"for name in ([\w ]+); do .*benchmarks/", (ROOT / "Makefile").read_text())
    paths = [f"benchmarks/{name}.py" for name in names.split()]
    assert len(paths) == 12
    loaded = subprocess.run(
        [sys.executable, "-c", LOAD, *paths], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert loaded.returncode == 0, loaded.stderr


def test_the_arithmetic_of_a_round_is_what_its_record_says(monkeypatch) -> None:
    """A cohort of three clients with 40 pictures each, 30 of 120 confident, 10 labels of which 2 are held out."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from measure import Costs
    from time_to_accuracy import needed, until

    record = {"class_predictions": [60, 60], "class_histogram": [10, 20], "cohort": [3, 5, 8]}
    method = {"mix_weight": 1.0, "statistics": "cohort", "server_epochs": 5, "client_epochs": 2}
    table = {"data": {"labeled": 10, "validation": 0.2, "clients": 100}, "method": method}
    trained = 8 * 5 + 30 * 2 * 2  # labels, and the confident in two views
    costs = Costs(training=3.0, labelling=2.0, statistics=1.0)
    seen = 120 * 2.0 + (8 + 120) * 1.0  # labelling, and statistics of server and cohort
    assert needed(record, table, costs) == trained * 3.0 + seen
    method["statistics"], method["mix_weight"] = "all", 0.0
    assert needed(record, table, costs) == (8 * 5 + 30 * 2) * 3.0 + 120 * 2.0 + 8 + 4000
    rounds = [(50.0, 3600.0, 1e12), (61.0, 7200.0, 3e12), (60.0, 9000.0, 4e12)]
    assert until(60.0, rounds) == {"rounds": 2, "hours": 2.0, "TFLOP": 3.0}


def test_what_the_labels_learned_first_counts(monkeypatch, tmp_path) -> None:
    """20 rounds of 5 epochs over 8 of 10 labels, begun once and taken up again once."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from measure import Costs
    from time_to_accuracy import before

    table = {
        "start": "labels",
        "rounds": 20,
        "data": {"labeled": 10, "validation": 0.2},
        "method": {"server_epochs": 5},
    }
    kinds = ("started from labels", 30.0), ("started from labels", 1.5)
    lines = [json.dumps({"event": kind, "seconds": seconds}) for kind, seconds in kinds]
    (tmp_path / "events.jsonl").write_text("\n".join([*lines, '{"event": "resumed", "after": 3}']) + "\n")
    costs = Costs(training=3.0, labelling=2.0, statistics=1.0)
    assert before(tmp_path, table, costs) == (31.5, 20 * (5 * 8 * 3.0 + 8 * 1.0))  # statistics after every round
    assert before(tmp_path, table | {"start": "model"}, costs) == (0.0, 0.0)


def test_inference_counts_mirror_images_and_training_does_not(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    from measure import Costs, costs_of

    plain, mirrored = (costs_of(FastCnn((2, 2, 2), mirrored=each).build(3, 8, 4), 3, 8) for each in (False, True))
    assert plain.labelling == plain.statistics
    assert mirrored == Costs(plain.training, 2 * plain.labelling, plain.statistics)


def test_what_workers_get_from_a_benchmark_lies_in_a_module() -> None:
    """A worker process knows nothing of the script that was started: a method defined there cannot reach it."""
    scripts = [path for path in sorted((ROOT / "benchmarks").glob("*.py")) if "__main__" in path.read_text()]
    assert len(scripts) >= 7
    assert [path.name for path in scripts if re.search(r"^class ", path.read_text(), re.MULTILINE)] == []

"""`semifl compare`, `semifl sweep` and `--tensorboard` as a person types them."""

import json
from pathlib import Path

import pytest

from semifl import toml
from semifl.cli import invoke
from toys import toy_table

Output = pytest.CaptureFixture[str]


def make_run(path: Path, seed: int, accuracy: float, **method: object) -> Path:
    """A finished run as its directory shows it."""
    path.mkdir(parents=True)
    config = {"seed": seed, "rounds": 3, "method": {"name": "semifl", "threshold": 0.95, **method}}
    (path / "config.toml").write_text(toml.dumps(config), encoding="utf-8")
    (path / "result.json").write_text(json.dumps({"accuracy": accuracy, "method": "semifl"}), encoding="utf-8")
    return path


def test_compare_pairs_runs_by_their_seeds(tmp_path: Path, capsys: Output) -> None:
    runs = [make_run(tmp_path / f"a{seed}", seed, 80.0 + seed) for seed in range(3)]
    runs += [make_run(tmp_path / f"b{seed}", seed, 84.0 + seed + (seed == 2), threshold=0.7) for seed in range(3)]
    assert invoke(["compare", *map(str, runs)]) == 0
    out = capsys.readouterr().out
    assert "threshold = 0.95" in out
    assert "81.0 (1.0, n = 3, 78.5 to 83.5)" in out  # 80, 81, 82: sd 1, t(0.975, 2) = 4.303: ± 4.303 / √3
    # Differences 4, 4, 5: mean 4.33, sd 0.577, t(0.975, 2) = 4.303: ± 1.43
    assert "+4.3 [+2.9, +5.8]" in out
    assert invoke(["compare", "--format", "json", *map(str, runs)]) == 0
    (table,) = json.loads(capsys.readouterr().out)
    assert table["rows"]["threshold = 0.7"]["accuracy"]["difference"]["seeds"] == 3


def test_compare_by_the_best_round_has_labels_alone_beside_it(tmp_path: Path, capsys: Output) -> None:
    run = make_run(tmp_path / "a", 0, 80.0)
    result = {"accuracy": 80.0, "best_test_accuracy": 83.0, "labels_only_accuracy": 71.5, "method": "semifl"}
    (run / "result.json").write_text(json.dumps(result), encoding="utf-8")
    assert invoke(["compare", str(run), "--metric", "best_test_accuracy"]) == 0
    out = capsys.readouterr().out
    assert "83.0" in out
    assert "71.5" in out


def test_compare_says_when_runs_have_no_seed_in_common(tmp_path: Path, capsys: Output) -> None:
    runs = [make_run(tmp_path / "a", 0, 80.0), make_run(tmp_path / "b", 1, 90.0, threshold=0.5)]
    assert invoke(["compare", *map(str, runs)]) == 0
    assert "No seed in common" in capsys.readouterr().err


def test_mistakes_in_comparing_are_one_sentence(tmp_path: Path, capsys: Output) -> None:
    a, twice = make_run(tmp_path / "a", 0, 80.0), make_run(tmp_path / "a2", 0, 81.0)
    (tmp_path / "empty").mkdir()
    unfinished = make_run(tmp_path / "u", 0, 1.0)
    (unfinished / "result.json").rename(unfinished / "environment.json")
    damaged = make_run(tmp_path / "d", 0, 1.0)
    (damaged / "result.json").write_text("{")
    for runs, said in (
        ([a, twice], "there twice"),
        ([tmp_path / "empty"], "is not a run directory"),
        ([unfinished], "run is not finished"),
        ([damaged], "result.json cannot be read"),
        ([a, "--metric", "acuracy"], "no number 'acuracy'; it has accuracy"),
    ):
        assert invoke(["compare", *map(str, runs)]) == 2
        error = capsys.readouterr().err
        assert said in error
        assert len(error.strip().splitlines()) == 1


SWEEP = """
config = "toy.toml"
seeds = [0, 1]
[set]
rounds = 1
[grid]
method.threshold = [0.3, 1.0]
"""


def test_a_sweep_runs_its_grid_once_and_prints_the_best_first(tmp_path: Path, capsys: Output, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.toml").write_text(toml.dumps({**toy_table(), "labels_only": False}), encoding="utf-8")
    (tmp_path / "grid.toml").write_text(SWEEP, encoding="utf-8")
    assert invoke(["sweep", "grid.toml", "--jobs", "1"]) == 0
    captured = capsys.readouterr()
    assert "4 of 4 runs to do in runs/sweeps/grid" in captured.err
    rows = [line.split("|")[1].strip() for line in captured.out.splitlines() if line.startswith("| method")]
    assert sorted(rows[:2]) == ["method.threshold=0.3", "method.threshold=1.0"]
    means = [float(line.split("|")[2].split()[0]) for line in captured.out.splitlines() if line.startswith("| method")]
    assert means[0] >= means[1]
    assert invoke(["sweep", "grid.toml"]) == 0
    assert "0 of 4 runs" in capsys.readouterr().err


def test_a_sweep_by_an_error_prints_the_lowest_first(tmp_path: Path, capsys: Output, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy.toml").write_text(toml.dumps({**toy_table(), "labels_only": False}), encoding="utf-8")
    (tmp_path / "grid.toml").write_text(SWEEP.replace("[0, 1]", "[0]"), encoding="utf-8")
    assert invoke(["sweep", "grid.toml", "--jobs", "1"]) == 0
    runs = sorted((tmp_path / "runs/sweeps/grid").glob("*/result.json"))
    for path, error in zip(runs, (9.0, 4.0), strict=True):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"calibration_error": error}), encoding="utf-8")
    capsys.readouterr()
    assert invoke(["sweep", "grid.toml", "--metric", "calibration_error"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| method")]
    assert [float(line.split("|")[2].split()[0]) for line in lines[:2]] == [4.0, 9.0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("seeds = [0]", "needs \\[grid\\]"),
        ("[grid]\nmethod.threshold = 0.3", "must be a list"),
        ("seeds = 3\n[grid]\nmethod.threshold = [0.3]", "seeds must be a list"),
        ("[gird]\nx = 1", "unknown key gird"),
        ("[grid]\nmethod.threshhold = [1.0]", "threshold"),
        ('preset = "digit"\n[grid]\nmethod.threshold = [1.0]', "digits"),
        ("grid = 3", "grid is a section"),
        ("set = 3\n[grid]\nmethod.threshold = [1.0]", "set is a section"),
        ("[grid]\nseed = [0, 1]", "grid has no seed"),
        ("[set]\nseed = 1\n[grid]\nmethod.threshold = [1.0]", "set has no seed"),
    ],
)
def test_mistakes_in_a_sweep_are_one_sentence(text: str, said: str, tmp_path: Path, capsys: Output) -> None:
    import re

    path = tmp_path / "grid.toml"
    path.write_text(text, encoding="utf-8")
    assert invoke(["sweep", str(path)]) == 2
    error = capsys.readouterr().err
    assert re.search(said, error)
    assert len(error.strip().splitlines()) == 1


def test_tensorboard_gets_every_number_of_a_round(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    path = tmp_path / "toy.toml"
    path.write_text(toml.dumps({**toy_table(), "rounds": 2}), encoding="utf-8")
    run = tmp_path / "run"
    assert invoke(["run", str(path), "--out", str(run), "--workers", "1", "--tensorboard"]) == 0
    seen = EventAccumulator(str(run / "tensorboard"))
    seen.Reload()
    records = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    assert [event.step for event in seen.Scalars("accuracy")] == [1, 2]
    assert [event.value for event in seen.Scalars("accuracy")] == pytest.approx([r["accuracy"] for r in records])
    assert {"labels_only_accuracy", "clients/abstained", "seconds/total", "lr"} <= set(seen.Tags()["scalars"])


def test_tensorboard_of_a_resumed_run_has_its_earlier_rounds(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    path = tmp_path / "toy.toml"
    path.write_text(toml.dumps({**toy_table(), "rounds": 2}), encoding="utf-8")
    run = tmp_path / "run"
    assert invoke(["run", str(path), "--out", str(run), "--workers", "1"]) == 0
    assert invoke(["resume", str(run), "--rounds", "4", "--workers", "1", "--tensorboard"]) == 0
    seen = EventAccumulator(str(run / "tensorboard"))
    seen.Reload()
    records = [json.loads(line) for line in (run / "rounds.jsonl").read_text().splitlines()]
    assert [event.step for event in seen.Scalars("accuracy")] == [1, 2, 3, 4]
    assert [event.value for event in seen.Scalars("accuracy")] == pytest.approx([r["accuracy"] for r in records])

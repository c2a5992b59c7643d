"""Metrics as a person meets them: predict, evaluate, compare, sweep, the outcome of a run and its report."""

import csv
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from semifl import toml
from semifl.cli import invoke
from semifl.cli.display import outcome
from toys import toy_table

Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Grey pictures of two kinds."""
    root, rng = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for part, count in {
        "labeled/healthy": 6,
        "labeled/ill": 6,
        "clients/a": 12,
        "test/healthy": 8,
        "test/ill": 4,
    }.items():
        (root / part).mkdir(parents=True)
        for number in range(count):
            grey = rng.integers(60, 160) + 40 * part.endswith("ill")
            pixels = (grey + rng.integers(-20, 21, (8, 8))).clip(0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(root / part / f"{number}.png")
    return root


def table_of(pictures: Path, **keys: object) -> dict:
    data = {"name": "folder", "root": str(pictures), "size": 8, "validation": 0.5, "unreadable": "skip"}
    return {**toy_table(), "rounds": 2, "metric": "auc", "data": data, **keys}


@pytest.fixture(scope="module")
def run(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "first"
    (out.parent / "config.toml").write_text(toml.dumps(table_of(pictures)))
    assert invoke(["run", str(out.parent / "config.toml"), "--out", str(out), "--workers", "1"]) == 0
    return out


def test_the_outcome_is_told_in_the_metric_that_decides(run: Path, capsys: Output) -> None:
    assert invoke(["resume", str(run)]) == 0
    out, result = capsys.readouterr().out, json.loads((run / "result.json").read_text())
    low, high = result["intervals"]["best_auc"]
    which = "the final model" if result["best_round"] == "final" else f"round {result['best_round']}"
    of = f"({which}, the best on labels held out)"
    assert f"AUC          {result['best_auc']:.1f} % [{low:.1f}, {high:.1f}]  {of}" in out
    gap, less, more = result["difference"]["auc"]
    assert gap == pytest.approx(result["best_auc"] - result["labels_only_auc"], abs=1e-5)
    assert f"AUC {gap:+.1f} points [{less:+.1f}, {more:+.1f}]" in out
    assert f"sensitivity {result['best_sensitivity']:.1f} % [" in out


def test_every_number_that_is_shown_is_of_the_model_that_was_kept(run: Path, capsys: Output) -> None:
    """By a result whose best round is far above the last model, which is below labels only."""
    table = {"best_auc": 92.0, "auc": 70.0, "labels_only_auc": 85.0, "best_round": 1, "kept": "best"}
    result = {**json.loads((run / "result.json").read_text()), **table}
    del result["difference"]
    assert "Compared with labels alone: AUC +7.0 points" in "\n".join(outcome(result))
    copied = shutil.copytree(run, run.parent / "copied")
    (copied / "result.json").write_text(json.dumps(result))
    assert invoke(["report", str(copied)]) == 0
    page = (copied / "report.html").read_text()
    assert "+7.0 points" in page
    (copied / "result.json").write_text(json.dumps({**result, "kept": "last"}))
    assert invoke(["report", str(copied)]) == 0
    page = (copied / "report.html").read_text()
    assert "-15.0 points" in page


def test_probabilities_have_the_same_names_in_csv_and_json(run: Path, pictures: Path, capsys: Output) -> None:
    asked = [str(pictures / "test"), "--probabilities"]
    assert invoke(["predict", str(run), *asked, "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert invoke(["predict", str(run), *asked, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(rows) == len(lines) == 12
    names = ["path", "class", "confidence", "probability_healthy", "probability_ill", "problem"]
    for row, line in zip(rows, lines, strict=True):
        assert list(row) == list(line) == names
        shares = {name: line[f"probability_{name}"] for name in ("healthy", "ill")}
        assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
        assert line["class"] == max(shares, key=lambda name: shares[name])
        assert line["confidence"] == max(shares.values())
        assert float(row["probability_ill"]) == shares["ill"]
    assert invoke(["predict", str(run), *asked]) == 0
    assert re.search(r"healthy 0\.\d{3}\till 0\.\d{3}$", capsys.readouterr().out.splitlines()[0])


def test_pictures_of_one_class_leave_open_what_needs_two(
    run: Path, pictures: Path, tmp_path: Path, capsys: Output
) -> None:
    shutil.copytree(pictures / "test/ill", tmp_path / "ill")
    assert invoke(["evaluate", str(run), str(tmp_path), "--json"]) == 0
    out = capsys.readouterr().out
    assert "NaN" not in out
    facts = json.loads(out)
    assert (facts["auc"], facts["specificity"]) == (None, None)
    assert 0 <= facts["sensitivity"] <= 100
    assert invoke(["evaluate", str(run), str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "AUC –, F1" in out
    low, high = facts["intervals"]["sensitivity"]
    assert f"sensitivity {facts['sensitivity']:.1f} % [{low:.1f}, {high:.1f}], specificity –\n" in out
    assert {"auc", "specificity"}.isdisjoint(facts["intervals"])


def test_predict_decides_by_a_threshold(run: Path, pictures: Path, capsys: Output) -> None:
    def said(threshold: str) -> list[str]:
        assert invoke(["predict", str(run), str(pictures / "test"), "--json", "--threshold", threshold]) == 0
        return [json.loads(line)["class"] for line in capsys.readouterr().out.splitlines()]

    assert set(said("0")) == {"ill"}
    assert set(said("1")) == {"healthy"}
    chosen = said("chosen")
    invoke(["evaluate", str(run), "--json"])
    scores = json.loads(capsys.readouterr().out)
    assert chosen[8:].count("ill") == pytest.approx(scores["sensitivity"] / 100 * 4)  # healthy comes first
    assert chosen[:8].count("healthy") == pytest.approx(scores["specificity"] / 100 * 8)
    assert invoke(["predict", str(run), str(pictures / "test"), "--threshold", "often"]) == 2
    assert "neither a probability" in capsys.readouterr().err


def test_evaluate_has_the_numbers_of_the_run(run: Path, capsys: Output) -> None:
    assert invoke(["evaluate", str(run), "--json"]) == 0
    scores, result = json.loads(capsys.readouterr().out), json.loads((run / "result.json").read_text())
    for name in ("auc", "f1", "balanced_accuracy", "calibration_error", "sensitivity", "decision_threshold"):
        assert scores[name] == pytest.approx(result[f"best_{name}"]), name  # the model of the best round was kept
    assert invoke(["evaluate", str(run), "--threshold", "0"]) == 0
    # Of 4 ill and 8 healthy pictures, by Wilson's formula: 4 / (4 + z²) = 0.510 and z² / (8 + z²) = 0.324.
    told = "sensitivity 100.0 % [51.0, 100.0], specificity 0.0 % [0.0, 32.4]"
    assert f"ill is said from a probability of 0.000 on: {told}" in capsys.readouterr().out


def test_skipped_files_are_no_failure_where_the_run_skips_them(run: Path, tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "broken.png").write_bytes(b"not a picture")
    assert invoke(["predict", str(run), str(tmp_path), "--csv"]) == 0
    captured = capsys.readouterr()
    assert "cannot be read as a picture" in captured.out
    assert "warning: 1 file could not be read" in captured.err


def test_compare_goes_by_the_metric_and_shows_labels_only(run: Path, capsys: Output) -> None:
    result = json.loads((run / "result.json").read_text())
    result["auc"] = result["best_auc"]  # of the model that was kept
    assert invoke(["compare", str(run)]) == 0
    out = capsys.readouterr().out
    assert "auc: mean (sd, number of seeds, 95 % interval of the mean)." in out
    assert f"{result['auc']:.1f} (n = 1)" in out
    assert f"{result['labels_only_auc']:.1f} (n = 1)" in out
    assert invoke(["compare", str(run), "--metric", "labels_only_balanced_accuracy"]) == 0
    assert f"{result['labels_only_balanced_accuracy']:.1f} (n = 1)" in capsys.readouterr().out


def test_a_sweep_goes_by_the_metric_and_shows_labels_only(pictures: Path, tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "config.toml").write_text(toml.dumps(table_of(pictures, rounds=1)))
    (tmp_path / "grid.toml").write_text('config = "config.toml"\n[grid]\n"method.threshold" = [0.3, 0.9]\n')
    asked = ["sweep", str(tmp_path / "grid.toml"), "--out", str(tmp_path / "runs"), "--jobs", "1"]
    assert invoke(asked) == 0
    out = capsys.readouterr().out
    header = next(line for line in out.splitlines() if line.startswith("|"))
    assert [cell.strip() for cell in header.strip("|").split("|")] == ["", "auc", "labels only", "difference"]
    results = [json.loads(path.read_text()) for path in (tmp_path / "runs").glob("*/result.json")]
    assert f"{max(each['auc'] for each in results):.1f} (n = 1)" in out
    assert all(f"{each['labels_only_auc']:.1f} (n = 1)" in out for each in results)
    assert invoke([*asked, "--metric", "acc"]) == 2
    assert "'acc' is no measure of result.json" in capsys.readouterr().err


def said(result: dict, name: str) -> str:
    low, high = result["intervals"][name]
    return f"{result[name]:.1f} % [{low:.1f}, {high:.1f}]"


def test_the_report_has_tiles_curves_and_numbers_for_the_metric(run: Path) -> None:
    text, result = (run / "report.html").read_text(), json.loads((run / "result.json").read_text())
    assert f"<dt>AUC, best on labels held out</dt><dd>{said(result, 'best_auc')}</dd>" in text
    assert f"<dt>labels only</dt><dd>{said(result, 'labels_only_auc')}</dd>" in text
    assert '<figure id="auc"' in text
    assert '<figure id="accuracy"' in text
    assert '<figure id="calibration"' in text
    prefixes = ("", "labels_only_") if result["best_round"] == "final" else ("", "best_", "labels_only_")
    cells = [said(result, f"{prefix}sensitivity") for prefix in prefixes]
    row = "".join(f"<td>{cell}</td>" for cell in cells)
    assert f'<th scope="row">sensitivity</th>{row}' in text


def test_a_table_with_columns_has_a_row_for_labels_only(tmp_path: Path, capsys: Output) -> None:
    from semifl.studies.tables import own_table, run_directory

    path = tmp_path / "table.toml"
    path.write_text(
        "[rows.low]\n'method.threshold' = 0.3\n[rows.high]\n'method.threshold' = 0.9\n"
        "[columns.few]\n'data.labeled' = 10\n[columns.many]\n'data.labeled' = 20\n"
    )
    reached = {("low", "few"): 70, ("high", "few"): 80, ("low", "many"): 95, ("high", "many"): 90}
    for cell in own_table(path, "paper").cells:
        directory = run_directory(tmp_path / "runs", cell, 0)
        directory.mkdir(parents=True)
        value = reached[cell.row, cell.column]
        (directory / "result.json").write_text(json.dumps({"accuracy": value, "labels_only_accuracy": value - 7}))
    assert invoke(["table", str(path), "--out", str(tmp_path / "runs")]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if "labels only" in line)
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    # Beside the best of each column: 80 with few labels, 95 with many.
    assert cells == ["labels only, of the best row", "73.0 (n = 1)", "88.0 (n = 1)"]

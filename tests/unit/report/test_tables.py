"""A table of results in its four formats."""

import csv
import io
import json
import math

import pytest

from semifl.report.tables import EMPTY, Entry, Grid, markdown_table, render

ROWS = {
    "a & b": [Entry({0: 80.0, 1: 84.0, 2: 85.0}), Entry({0: 70.0})],
    "c_d": [Entry({0: 86.0, 1: 88.0, 2: 90.0}, "88.2 (0.3)"), EMPTY],
}
GRID = Grid("accuracy", ["IID", "K = 2"], ROWS, "A table", against="a & b")
# By hand: means 83 and 88; deviations √((9 + 1 + 4) / 2) = 2.646 and 2; differences 6, 4, 5: mean 5, deviation 1.
T2 = 4.302653  # t(0.975, 2)
HALF_A, HALF_C, HALF_D = (T2 * each / math.sqrt(3) for each in (math.sqrt(7), 2.0, 1.0))


def test_markdown_lines_up() -> None:
    text = markdown_table(["", "IID"], [["Π-Model", "1"], ["x", "22.0"]])
    lines = text.splitlines()
    assert len({len(line) for line in lines}) == 1
    assert lines[1] == "|---------|------|"


def test_in_markdown_every_mean_has_its_interval() -> None:
    text = render([GRID], "markdown")
    assert f"83.0 (2.6, n = 3, {83 - HALF_A:.1f} to {83 + HALF_A:.1f})" in text
    assert f"88.0 (2.0, n = 3, {88 - HALF_C:.1f} to {88 + HALF_C:.1f}) [88.2 (0.3)]" in text
    assert "| 70.0 (n = 1) |" in text
    assert f"| c_d | +5.0 [{5 - HALF_D:+.1f}, {5 + HALF_D:+.1f}] |" in text
    assert "population" not in text


def test_the_papers_tables_have_the_papers_deviation() -> None:
    text = render([Grid("accuracy", ["IID"], {"a": [Entry({0: 88.0, 1: 92.0})]}, population=True)], "markdown")
    assert "90.0 (2.0, n = 2" in text
    assert "population's, as in the paper" in text


def test_latex_has_booktabs_the_best_in_bold_and_no_raw_special_letters() -> None:
    lines = render([GRID], "latex").splitlines()
    assert lines[2:8] == [
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r" & IID & K = 2 \\",
        r"\midrule",
        r"a \& b & $83.0 \pm 2.6$ & $70.0$ \\",
        r"c\_d & $\mathbf{88.0 \pm 2.0}$ [88.2 (0.3)] & -- \\",
    ]
    assert rf"c\_d & $+5.0\;[{5 - HALF_D:+.1f}, {5 + HALF_D:+.1f}]$ & -- \\" in lines
    assert lines[1] == r"% accuracy: mean \pm sample standard deviation over 1–3 seeds; the best mean is bold"


@pytest.mark.parametrize(("metric", "best"), [("accuracy", "9.0"), ("calibration_error", "2.0")])
def test_the_best_is_the_least_where_less_is_better(metric: str, best: str) -> None:
    text = render([Grid(metric, ["x"], {"a": [Entry({0: 9.0})], "b": [Entry({0: 2.0})]})], "latex")
    assert text.count("mathbf") == 1
    assert rf"$\mathbf{{{best}}}$" in text


def test_csv_has_a_line_for_each_cell() -> None:
    lines = list(csv.DictReader(io.StringIO(render([GRID], "csv"))))
    assert [(line["row"], line["column"], line["n"]) for line in lines] == [
        ("a & b", "IID", "3"),
        ("a & b", "K = 2", "1"),
        ("c_d", "IID", "3"),
    ]
    numbers = {
        key: float(value) for key, value in lines[2].items() if key in ("mean", "deviation", "low", "difference")
    }
    wanted = {"mean": 88.0, "deviation": 2.0, "low": 88 - HALF_C, "difference": 5.0}
    assert numbers == pytest.approx(wanted, abs=1e-4)
    assert lines[1]["deviation"] == lines[1]["low"] == ""  # of one seed


def test_json_holds_the_values_of_every_seed() -> None:
    (table,) = json.loads(render([GRID], "json"))
    cell = table["rows"]["c_d"]["IID"]
    assert cell["values"] == {"0": 86.0, "1": 88.0, "2": 90.0}
    assert (cell["published"], cell["seeds"], cell["difference"]["mean"]) == ("88.2 (0.3)", 3, 5.0)
    assert table["rows"]["a & b"]["K = 2"]["low"] is None


def test_bytes_are_in_megabytes_everywhere() -> None:
    grid = Grid("bytes_up", ["bytes_up"], {"a": [Entry({0: 7_817_800})], "b": [Entry({0: 5_000_000})]}, against="b")
    assert "bytes_up in MB" in (text := render([grid], "markdown"))
    assert "| 7.8 (n = 1) | +2.8 (one seed) |" in text
    assert json.loads(render([grid], "json"))[0]["rows"]["a"]["bytes_up"]["values"] == {"0": 7.8178}
    assert r"$\mathbf{5.0}$" in render([grid], "latex")  # the fewest

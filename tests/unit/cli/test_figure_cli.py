"""`semifl figure`: each figure from run directories, with what is missing said or run."""

import json
import math
from pathlib import Path

import pytest

from semifl.cli import invoke
from semifl.cli.figure import ABOUT, DIAGRAMS
from semifl.report.groups import Group
from semifl.report.paper_figures import Curve, Drawing, draw, printed_value
from semifl.report.reading import read_run
from semifl.studies import paper_figures, tables
from semifl.studies.paper_figures import FIGURES, paper_figure
from toys import toy_table


def write_run(directory: Path, accuracies: list[float], **facts: float) -> None:
    directory.mkdir(parents=True)
    rounds = [{"round": number, "accuracy": value, **facts} for number, value in enumerate(accuracies, 1)]
    (directory / "rounds.jsonl").write_text("".join(json.dumps(each) + "\n" for each in rounds))
    (directory / "config.toml").write_text('[method]\nname = "semifl"\n')
    best = max(accuracies)
    (directory / "result.json").write_text(json.dumps({"accuracy": accuracies[-1], "best_test_accuracy": best}))


def test_every_figure_of_the_paper_is_there() -> None:
    assert set(FIGURES) | set(DIAGRAMS) == set(ABOUT)
    assert not set(FIGURES) & set(DIAGRAMS)
    assert [about.partition(":")[0] for about in ABOUT.values()] == [f"Figure {number}" for number in range(1, 11)]


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("scale", ["tiny", "paper"])
def test_a_figure_has_its_lines(name: str, scale: str) -> None:
    figure = paper_figure(name, scale)
    expected = {
        "cifar10": (5 * 2, 4), "svhn": (5 * 2, 4), "cifar100": (5 * 2, 4),
        "fedsgd": (2, 2), "quality": (3 * 2, 4), "ablation": (2, 4),
    }  # fmt: skip
    panels, lines = expected[name]
    assert len(figure.panels) == (panels if scale == "paper" or panels != 10 else 3)
    assert len(figure.panels[0].lines) == lines
    if name in ("cifar10", "svhn", "cifar100"):
        assert len(figure.panels[-1].lines) == 7  # the semi-supervised rows
    for panel in figure.panels:
        assert [level.label for level in panel.levels] in ([], ["Fully Supervised", "Partially Supervised"])


def test_a_figure_and_the_tables_share_their_runs() -> None:
    in_tables = {cell.name for table in tables.paper_tables("tiny") for cell in table.cells}
    for name in ("cifar10", "fedsgd", "quality", "ablation"):
        for panel in paper_figure(name, "tiny").panels:
            assert {line.cell.name for line in (*panel.lines, *panel.levels)} <= in_tables


def test_a_line_is_the_mean_over_seeds_in_a_band_and_the_papers_value_a_mark(tmp_path: Path) -> None:
    write_run(tmp_path / "a-seed-0", [10.0, 40.0])
    write_run(tmp_path / "a-seed-1", [30.0, 60.0])
    group = Group("a", [read_run(tmp_path / f"a-seed-{seed}") for seed in (0, 1)])
    panel = Drawing("panel", [Curve(group, 93.1)], [Curve(group, None)])
    (axes,) = draw("title", [panel], 1, "").axes
    curve, mark, level = axes.lines
    assert curve.get_xydata().tolist() == [[1, 20], [2, 50]]
    assert mark.get_xydata().tolist() == [[2, 93.1]]
    assert set(level.get_ydata()) == {50.0}  # the mean of the best rounds, 40 and 60
    (band,) = axes.collections
    heights = {(x, round(y, 3)) for x, y in band.get_paths()[0].vertices.tolist()}
    # One sample standard deviation to either side: √(10² + 10²) = 14.142.
    assert {(1, 5.858), (1, 34.142), (2, 35.858), (2, 64.142)} <= heights


def test_what_a_round_costs_is_in_the_legend(tmp_path: Path) -> None:
    write_run(tmp_path / "a-seed-0", [10.0, 40.0], bytes_up=1_000_000, bytes_down=3_000_000)
    group = Group("FedSGD", [read_run(tmp_path / "a-seed-0")])
    (axes,) = draw("title", [Drawing("panel", [Curve(group)], bytes_too=True)], 1, "").axes
    assert axes.get_legend_handles_labels()[1] == ["FedSGD (4.0 MB a round)"]


@pytest.mark.parametrize(("text", "value"), [("93.1 (0.1)", 93.1), ("40.26", 40.26), ("", None)])
def test_a_printed_value_is_read(text: str, value: float | None) -> None:
    found = printed_value(text)
    assert found == value or (found is not None and value is not None and math.isclose(found, value))


def test_what_needs_no_run_is_drawn_on_one_page(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert invoke(["figure", "all", "--scale", "tiny", "--runs", str(tmp_path), "-o", str(tmp_path / "page.html")]) == 0
    assert "no run of fedsgd, cifar10, quality, svhn, cifar100, ablation is in" in capsys.readouterr().err
    diagrams = [name for name in ABOUT if name not in FIGURES]
    for name in diagrams:
        assert (tmp_path / "page" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (tmp_path / "page" / f"{name}.svg").read_text()
    assert not (tmp_path / "page" / "fedsgd.png").exists()  # it would be an empty frame
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg") == len(diagrams)
    assert "<script" not in page
    identifiers = [part.partition('"')[0] for part in page.split(' id="')[1:]]
    assert len(identifiers) == len(set(identifiers))


def test_what_is_missing_is_run_and_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    cell = tables.Cell("toy", "row", "x", {**toy_table(), "rounds": 1, "labels_only": False})
    line = paper_figures.FigureLine("toy", cell)
    figure = paper_figures.PaperFigure("toy", [paper_figures.Panel("panel", [line], [line])], 1)
    monkeypatch.setitem(FIGURES, "ablation", lambda every, scale, name: figure)
    words = ["figure", "ablation", "--scale", "tiny", "--seeds", "0,1", "--jobs", "1", "--runs", str(tmp_path / "runs")]
    for todo in (2, 0):
        assert invoke([*words, "-o", str(tmp_path / "out")]) == 0
        assert f"{todo} of 2 runs to do" in capsys.readouterr().err
    assert (tmp_path / "out/ablation.png").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["cifar"], "cifar10"),
        (["ssfl", "--seeds", "x"], "0,1,2"),
        (["fedsgd", "--scale", "tiny", "--runs", "none"], "make them with 'semifl figure fedsgd --scale tiny --seeds"),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert invoke(["figure", *words, "-o", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1

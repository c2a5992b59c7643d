"""The page as text: every figure, every number in a table, nothing from outside, nothing unescaped, any damage told."""

import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from semifl.errors import UserError
from semifl.report.groups import group_runs
from semifl.report.page import _tiles, page, write_report
from semifl.report.reading import read_run
from semifl.report.svg import Line, line_chart, ticks
from written_runs import round_line, write_run

FIGURES = (
    "accuracy metrics loss pseudo-labels signals update-norm "
    "participation confidence classes confusion calibration seconds bytes"
).split()
GALLERIES = ["gallery-views", "gallery-confident", "gallery-mistakes"]


class Outline(HTMLParser):
    """Which elements a page has, with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", [round_line(index) for index in range(1, 7)])


def tiles_of(*runs: Path) -> dict[str, str]:
    (group,) = group_runs([read_run(run) for run in runs])
    return dict(_tiles(group))


def alone(run: Path, **numbers: float) -> Path:
    """What a run that goes on knows of its labels-only models."""
    (run / "labels_only.json").write_text(json.dumps(numbers))
    return run


def test_the_difference_from_labels_only_is_told_by_runs_that_have_both_numbers(tmp_path: Path) -> None:
    lines = [round_line(1), round_line(2)]  # accuracies of 51 and 52
    done = {"accuracy": 90.0, "labels_only_accuracy": 60.0, "plain_labels_only_accuracy": 55.0}
    first = write_run(tmp_path / "0", lines, seed=0, **done)
    second = alone(write_run(tmp_path / "1", lines, seed=1, done=False), labels_only_accuracy=80.0)
    for runs in ((first, second), (second, first)):
        tiles = tiles_of(*runs)
        assert tiles["better than labels only by, in 1 of 2 runs"] == "+30.0 points"  # 90 − 60, and not 90 − 70
    third = write_run(tmp_path / "2", lines, seed=2, **done | {"labels_only_accuracy": 80.0})
    # 30 and 10: of the mean 20 the standard error is 10, and t(0.975, 1) = 12.706.
    assert tiles_of(first, third)["better than labels only by"] == "+20.0 points [-107.1, +147.1]"
    # While nothing is finished: the last round that there is, of those runs that have it.
    ahead = alone(write_run(tmp_path / "3", lines, seed=3, done=False), labels_only_accuracy=50.0)
    behind = alone(write_run(tmp_path / "4", lines, seed=4, done=False), labels_only_accuracy=10.0)
    (behind / "rounds.jsonl").write_text(json.dumps(lines[0]) + "\n")
    assert tiles_of(ahead, behind)["better than labels only by, in 1 of 2 runs"] == "+2.0 points"


def test_the_kept_model_is_that_of_a_finished_run(tmp_path: Path) -> None:
    lines = [round_line(1)]
    going_on = write_run(tmp_path / "0", lines, seed=0, done=False)
    kept = {"kept": "best", "best_accuracy": 90.0, "accuracy": 70.0, "labels_only_accuracy": 60.0}
    tiles = tiles_of(going_on, write_run(tmp_path / "1", lines, seed=1, **kept))
    assert tiles["accuracy, best on labels held out"] == "90.0 %"
    assert tiles["better than labels only by, in 1 of 2 runs"] == "+30.0 points"


def test_words_that_are_no_text_are_written_all_the_same(run: Path) -> None:
    with (run / "events.jsonl").open("a") as file:  # a lone surrogate: what Python makes of a name in Latin-1
        file.write(json.dumps({"time": "now", "event": "duplicates", "what": "\udce4.png is \ud800.png"}) + "\n")
    assert "\\udce4.png is \\ud800.png" in write_report([run], run / "report.html").read_text(encoding="utf-8")


def test_every_figure_is_there_with_words_and_a_table(run: Path) -> None:
    text = page([run])
    outline = Outline(text)
    assert [each["id"] for each in outline.all("figure")] == FIGURES + GALLERIES
    drawings = outline.all("svg")
    assert len(drawings) == len(FIGURES)
    assert all(each["role"] == "img" and len(each["aria-label"] or "") > 20 for each in drawings)
    assert {f"{name}-table" for name in FIGURES} <= {each.get("id") for each in outline.all("details")}
    assert text.count("<figcaption>") == len(FIGURES + GALLERIES)
    assert all(each["alt"] for each in outline.all("img"))


def test_descriptions_say_the_numbers(run: Path) -> None:
    text = page([run])
    assert (
        "semifl: from 51.0 % in round 1 to 56.0 % in round 6; the final model reaches 80.0 %, labels alone 60.0 %"
        in text
    )
    assert "6 of 6 sites were asked 24 times in all: 24 trained." in text
    assert "Of 600 confident pseudo-labels 40 % are blue" in text
    # Row blue of the matrix: 7 of 10 right, 3 taken for red.
    assert "Least often recognised is blue, 70 % of the time." in text
    assert "takes blue for red, 3 times" in text
    assert "12.0 MB went to clients and 6.0 MB came back" in text


def test_long_class_names_fit_where_there_is_room(run: Path) -> None:
    world = json.loads((run / "world.json").read_text())
    names = ["pneumonia, bacterial", "pneumonia, viral", "healthy"]
    (run / "world.json").write_text(json.dumps(world | {"class_names": names}))
    text = page([run])
    assert ">pneumonia, bacterial</text>" in text
    # What stands beside the matrix lies inside the drawing: letters are at most 7.6 wide.
    (x,) = re.findall(r'<text x="([\d.]+)" y="[\d.]+" text-anchor="end">pneumonia, bacterial</text>', text)
    assert float(x) >= 7.6 * len(names[0])


def test_why_clients_pictures_are_missing_is_said(run: Path) -> None:
    gallery = json.loads((run / "gallery/gallery.json").read_text())
    gallery |= {"galleries": gallery["galleries"][:1], "note": "Pictures of the sites are not shown"}
    (run / "gallery/gallery.json").write_text(json.dumps(gallery))
    assert "Pictures of the sites are not shown" in page([run])


def test_nothing_comes_from_outside_and_nothing_runs(run: Path) -> None:
    text = page([run])
    outline = Outline(text)
    assert not outline.all("script")
    sources = [str(each.get(key)) for _, each in outline.elements for key in ("src", "href") if each.get(key)]
    assert all(source.startswith(("data:", "#")) for source in sources)
    assert "url(" not in text
    assert "@import" not in text


def test_whatever_files_say_is_harmless(run: Path) -> None:
    evil = '<script>alert(1)</script><img src=x onerror="alert(2)">'
    world = json.loads((run / "world.json").read_text()) | {"class_names": [evil, '"><svg onload=alert(3)>', "blue"]}
    world["sites"] = [evil] * 6
    (run / "world.json").write_text(json.dumps(world))
    gallery = json.loads((run / "gallery/gallery.json").read_text())
    gallery["galleries"][1]["captions"] = [evil]
    (run / "gallery/gallery.json").write_text(json.dumps(gallery))
    (run / "events.jsonl").write_text(json.dumps({"time": "now", "event": evil, "reason": evil, evil: evil}) + "\n")
    (run / "environment.json").write_text(json.dumps({evil: evil, "command": [evil]}))
    outline = Outline(page([run]))
    assert not outline.all("script")
    assert not [each for _, each in outline.elements if any(name.startswith("on") for name in each)]
    assert all(str(each["src"]).startswith("data:") for each in outline.all("img"))


def test_an_unfinished_run_says_so_and_has_its_figures(tmp_path: Path) -> None:
    text = page([write_run(tmp_path / "run", [round_line(1), round_line(2)], done=False)])
    assert "This run is not finished: 2 of 2 rounds are done." in text
    assert [each["id"] for each in Outline(text).all("figure")] == FIGURES
    assert "made of the final model when the run ends" in text


def test_a_run_before_its_first_round(tmp_path: Path) -> None:
    text = page([write_run(tmp_path / "run", [], done=False)])
    assert [each["id"] for each in Outline(text).all("figure")] == [each for each in FIGURES if each != "signals"]
    assert "No round has been tested yet." in text


def test_a_cut_off_line_is_told(run: Path) -> None:
    content = (run / "rounds.jsonl").read_text()
    (run / "rounds.jsonl").write_text(content[: len(content) - 40])
    text = page([run])
    assert "rounds.jsonl is cut off or damaged in line 6 of 6." in text
    assert "from 51.0 % in round 1 to 55.0 % in round 5" in text


@pytest.mark.parametrize("name", ["config.toml", "environment.json", "result.json", "world.json", "confusion.json"])
@pytest.mark.parametrize("content", ["", "[1, 2", "\x00\x00", '["a list"]'])
def test_a_damaged_file_is_told(run: Path, name: str, content: str) -> None:
    (run / name).write_text(content)
    text = page([run])
    assert f"{name} cannot be read" in text or f"{name} is damaged" in text


def test_a_damaged_gallery_is_told(run: Path) -> None:
    (run / "gallery/views.png").write_bytes(b"no picture")
    text = page([run])
    assert "gallery/views.png cannot be shown" in text
    assert 'id="gallery-confident"' in text


def test_a_run_of_an_older_version_has_a_page(tmp_path: Path) -> None:
    lines = [round_line(index) for index in (1, 2, 3)]
    for line in lines:
        del line["confidence_histograms"]
    folder = write_run(tmp_path / "run", lines)
    (folder / "world.json").unlink()
    (folder / "confusion.json").unlink()
    text = page([folder])
    assert "Confidence by site was not recorded" in text
    assert "Of 300 confident pseudo-labels 40 % are class 2" in text  # classes by number


def test_label_free_curves_where_nobody_knows_the_truth(tmp_path: Path) -> None:
    lines = [round_line(index, pseudo_accuracy=None, confident_accuracy=None) for index in (1, 2, 3)]
    text = page([write_run(tmp_path / "run", lines)])
    assert "Signals that need no label" in text
    assert "strong views that agree: from 90.0 % in round 1" in text


def untested(index: int) -> dict[str, Any]:
    return {key: value for key, value in round_line(index).items() if key not in ("accuracy", "loss")}


def test_the_dot_of_the_final_model_is_after_the_last_round_tested_or_not(tmp_path: Path) -> None:
    lines = [untested(1), round_line(2), untested(3), round_line(4), untested(5)]
    (group,) = group_runs([read_run(write_run(tmp_path / "run", lines))])
    assert [point.round for point in group.series("accuracy")] == [2, 4]
    assert group.last_round == 5
    # Rounds 2 to 6 lie from 46 to 424: the line ends in the middle, the dot and the dashed line at the end.
    (drawing,) = re.findall(r'<figure id="accuracy".*?</svg>', page([tmp_path / "run"]), re.DOTALL)
    assert re.findall(r'<path class="line c1" d="M(\d+) [\d.]+L(\d+) ', drawing) == [("46", "235")]
    assert re.findall(r'<circle class="c1" cx="(\d+)"', drawing) == ["424"]


def test_a_mean_is_of_rounds_that_every_seed_has_tested(tmp_path: Path) -> None:
    often = [round_line(index, accuracy=60.0 + index) for index in range(1, 5)]
    seldom = [untested(1), round_line(2, accuracy=70.0), untested(3), round_line(4, accuracy=72.0)]
    runs = [write_run(tmp_path / str(seed), lines, seed) for seed, lines in enumerate((often, seldom))]
    (group,) = group_runs([read_run(run) for run in runs])
    assert [(point.round, point.mean) for point in group.series("accuracy")] == [(2, 66.0), (4, 68.0)]
    # What no test is needed for is there of every round.
    assert [point.round for point in group.series("label_ratio")] == [1, 2, 3, 4]


def test_seeds_become_one_line_with_a_band(tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / f"seed-{seed}", [round_line(index, accuracy=value) for index in (1, 2)], seed)
        for seed, value in ((0, 60.0), (1, 70.0))
    ]
    other = write_run(tmp_path / "other", [round_line(1), round_line(2)])
    changed = (other / "config.toml").read_text().replace("threshold = 0.95", "threshold = 0.5")
    (other / "config.toml").write_text(changed)
    groups = group_runs([read_run(path) for path in (*runs, other)])
    assert [(group.label, len(group.runs)) for group in groups] == [("threshold = 0.95", 2), ("threshold = 0.5", 1)]
    # Of 60 and 70 the mean is 65 and the standard deviation of the sample √(5² + 5²) = 7.07.
    points = groups[0].series("accuracy")
    assert [point.round for point in points] == [1, 2]
    assert [points[0].mean, points[0].low, points[0].high] == pytest.approx([65, 65 - 50**0.5, 65 + 50**0.5])
    text = page([*runs, other])
    assert "65.0 ± 7" in text
    assert "bands one standard deviation" in text
    ids = [str(each["id"]) for each in Outline(text).all("figure")]
    assert len(ids) == len(set(ids))
    assert {"accuracy", "run1-confusion", "run2-gallery-views"} <= set(ids)


def test_a_long_run_of_many_sites_is_a_small_page_in_little_time(tmp_path: Path) -> None:
    cohorts = [sorted((7 * index + 11 * step) % 100 for step in range(10)) for index in range(1, 801)]
    lines = [
        round_line(index, cohort=cohort, confidence_histograms=[[10] * 10] * 10, class_histogram=[5] * 100)
        for index, cohort in enumerate(cohorts, 1)
    ]
    folder = write_run(tmp_path / "run", lines)
    names = [f"class {label}" for label in range(100)]
    world = {"class_names": names, "server_classes": [4] * 100, "client_pictures": [500] * 100, "sites": []}
    (folder / "world.json").write_text(json.dumps(world))
    (folder / "confusion.json").write_text(json.dumps({"counts": [[1] * 100] * 100}))
    began = time.perf_counter()
    out = write_report([folder], tmp_path / "report.html")
    assert time.perf_counter() - began < 10
    assert out.stat().st_size < 2_000_000


def test_no_run_directory_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no run directory"):
        page([tmp_path / "nowhere"])
    with pytest.raises(UserError, match="not a run directory"):
        page([tmp_path])


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
keys = st.sampled_from([*round_line(1), "accuracy", "confidence_histograms", "class_histogram", "seconds", "cohort"])


@settings(max_examples=60, deadline=None)
@given(
    lines=st.lists(st.dictionaries(keys, anything, max_size=6), max_size=4),
    result=st.dictionaries(st.sampled_from(["accuracy", "balanced_accuracy", "seconds"]), anything),
    world=st.dictionaries(st.sampled_from(["class_names", "server_classes", "client_pictures", "sites"]), anything),
    gallery=anything,
)
def test_files_that_say_anything_give_a_page(
    tmp_path_factory: pytest.TempPathFactory, lines: list[Any], result: Any, world: Any, gallery: Any
) -> None:
    rounds = [
        round_line(index, **{k: v for k, v in line.items() if k != "round"}) for index, line in enumerate(lines, 1)
    ]
    folder = write_run(tmp_path_factory.mktemp("any") / "run", rounds, **result)
    (folder / "world.json").write_text(json.dumps(world))
    (folder / "gallery/gallery.json").write_text(json.dumps({"galleries": [{"name": "views", "captions": gallery}]}))
    text = page([folder])
    assert re.search(r"\b(nan|inf)\b", " ".join(re.findall(r' d="([^"]*)"', text))) is None


@given(low=st.floats(-1e9, 1e9), span=st.floats(1e-3, 1e9))
def test_ticks_lie_inside_and_are_few(low: float, span: float) -> None:
    found = ticks(low, low + span)
    slack = 1e-6 * (abs(low) + span)
    assert 1 <= len(found) <= 8
    assert all(low - slack <= tick <= low + span + slack for tick in found)


def test_a_single_value_is_a_dot() -> None:
    whole = line_chart([Line("all", "c1", [(1.0, 100.0), (2.0, 100.0)])], "percent", "all of them")
    assert ">100<" in whole
    assert ">120<" not in whole  # there is no more than all of them
    drawing = line_chart([Line("one", "c1", [(1.0, 5.0)])], "percent", "one value")
    assert "<circle" in drawing
    assert "nan" not in drawing

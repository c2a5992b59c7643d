"""The report in a real browser: a phone and a desk, light and dark, on paper, and refreshed while a run goes on."""

import json
import threading
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from PIL import Image

from browser import chromium
from semifl.report.page import write_report
from semifl.report.watch import PageServer
from written_runs import round_line, write_run

FIGURES = (
    "accuracy metrics loss pseudo-labels signals update-norm "
    "participation confidence classes confusion calibration seconds bytes"
).split()
FIGURES += ["gallery-views", "gallery-confident", "gallery-mistakes"]
# Sideways, only a table may scroll, and that in its own box.
OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
SIZES = """Object.fromEntries([...document.querySelectorAll("figure")].map(each => {
    const box = (each.querySelector("svg, img") ?? each).getBoundingClientRect();
    return [each.id, [box.width, box.height]];
}))"""
INK = """(() => {
    const pair = [getComputedStyle(document.body).color, getComputedStyle(document.body).backgroundColor];
    return pair.map(colour => colour.match(/[0-9]+/g).slice(0, 3).map(Number).reduce((a, b) => a + b) / 3);
})()"""
LETTERS = """Math.min(...[...document.querySelectorAll("svg text")].filter(each => each.textContent.trim())
    .map(each => each.getBoundingClientRect().height))"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Page]:
    program = chromium.find()
    if program is None:
        pytest.skip(chromium.MISSING)
    with chromium.browser(program, tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve rounds with a class and a path that try to break the page."""
    name = "a-run-with-a-name-that-is-much-too-long-for-the-screen-of-any-telephone-whatever-its-size"
    lines = [round_line(index, abstained=[index % 6], failed=[]) for index in range(1, 13)]
    folder = write_run(tmp_path_factory.mktemp("runs") / name, lines)
    world = json.loads((folder / "world.json").read_text())
    world["class_names"] = ["<script>document.body.remove()</script>", "grün", "b" * 80]
    (folder / "world.json").write_text(json.dumps(world))
    write_report([folder], folder / "report.html")
    return folder


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_the_page_works(page: chromium.Page, run: Path, tmp_path: Path, width: int, scheme: str) -> None:
    page.look(width, scheme)
    page.open((run / "report.html").as_uri())
    assert page.troubles == []
    assert [url for url in page.requests if not url.startswith("data:")] == [(run / "report.html").as_uri()]
    sizes = page.value(SIZES)
    assert list(sizes) == FIGURES
    assert all(wide > 40 and high > 20 for wide, high in sizes.values()), sizes
    assert page.value(OVERFLOW) == 0
    page.value('document.querySelectorAll("details").forEach(each => each.open = true)')
    assert page.value(OVERFLOW) == 0, "with all tables open"
    assert page.value(LETTERS) >= 8
    ink, paper = page.value(INK)
    assert (ink < 90 and paper > 230) if scheme == "light" else (ink > 200 and paper < 50)
    page.picture(tmp_path / "page.png")
    assert len(Image.open(tmp_path / "page.png").convert("RGB").getcolors(1 << 24) or []) > 20


def test_several_runs_are_overlaid(page: chromium.Page, tmp_path: Path) -> None:
    runs = [
        write_run(tmp_path / f"run-{seed}", [round_line(index) for index in (1, 2, 3)], seed, accuracy=70.0 + seed)
        for seed in range(3)
    ]
    page.look(390)
    page.open(write_report(runs, tmp_path / "report.html").as_uri())
    assert page.troubles == []
    assert page.value(OVERFLOW) == 0
    assert page.value('document.querySelectorAll("#accuracy .band").length') == 1


def test_a_screen_reader_finds_a_name_for_everything(page: chromium.Page, run: Path) -> None:
    page.look(1280)
    page.open((run / "report.html").as_uri())
    page.ask("Accessibility.enable")
    nodes = page.ask("Accessibility.getFullAXTree")["nodes"]
    pictures = [node for node in nodes if node.get("role", {}).get("value") in ("image", "img", "region")]
    assert len(pictures) >= len(FIGURES)
    assert all(node.get("name", {}).get("value") for node in pictures)
    headings = page.value('[...document.querySelectorAll("h1, h2, h3")].map(each => Number(each.tagName[1]))')
    assert headings[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(headings))


def test_on_paper_it_is_black_on_white_and_nothing_is_cut_off(page: chromium.Page, run: Path) -> None:
    page.look(794, "dark", "print")  # the width of a sheet of A4
    page.open((run / "report.html").as_uri())
    ink, paper = page.value(INK)
    assert ink < 20
    assert paper > 250
    assert page.value(OVERFLOW) == 0
    printed = page.ask("Page.printToPDF")["data"]
    assert len(printed) > 10_000


def test_the_watched_page_grows_with_the_run(page: chromium.Page, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", [round_line(1), round_line(2)], done=False)
    with PageServer([folder], port=0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        page.look(1280)
        page.open(server.address)
        page.value('document.getElementById("accuracy-table").open = true')
        with (folder / "rounds.jsonl").open("a") as file:
            file.write(json.dumps(round_line(3)) + "\n")
        rows = 'document.querySelectorAll("#accuracy-table tbody tr").length'
        deadline = time.monotonic() + 20
        while page.value(rows) != 3 and time.monotonic() < deadline:
            time.sleep(0.2)
        assert page.value(rows) == 3
        assert page.value('document.getElementById("accuracy-table").open'), "what was open stays open"
        assert page.troubles == []
        server.shutdown()
        thread.join()

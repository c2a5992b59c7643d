"""Pictures and pages are written whole."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np

from semifl.theory.critical import CriticalSweep
from semifl.theory.demo import scene
from semifl.theory.figures import draw_critical, draw_demo, draw_rates, save
from semifl.theory.page import write_page
from semifl.theory.rates import Slope
from semifl.theory.settings import SETTINGS


def check(directory: Path, name: str, svg: str) -> None:
    assert (directory / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert (directory / f"{name}.svg").read_text() == svg
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    page = write_page(directory, "A <title>", ["One sentence."], "a table", svg).read_text()
    assert "A &lt;title&gt;" in page
    assert page.count("<svg") == 1
    assert "src=" not in page


def test_rates(tmp_path: Path) -> None:
    risks = np.random.default_rng(0).random((3, 4)) + 0.1
    found = [
        Slope(SETTINGS[name], kind, 0.3, 0.4, 0.3, 0.5, (10, 100, 1000), risks)
        for name in ("rough", "plane")
        for kind in ("semi-supervised", "supervised")
    ]
    check(tmp_path, "rates", save(draw_rates(found), tmp_path, "rates"))


def test_critical(tmp_path: Path) -> None:
    setting, sweep = SETTINGS["rough"], CriticalSweep(quick=True)
    gains = {setting: {1000: np.linspace(3, 0.5, len(sweep.zetas))}}
    check(tmp_path, "critical", save(draw_critical([setting], sweep, gains), tmp_path, "critical"))


def test_demo() -> None:
    shown = scene(seed=1)
    assert shown.after < shown.before
    assert set(np.unique(shown.after_classes)) == {0, 1}
    edge = shown.core[0]
    assert ((shown.carried[shown.shown, 0] >= edge) & (shown.carried[shown.shown, 0] <= 1 - edge)).all()
    assert len(draw_demo(shown).axes) == 3

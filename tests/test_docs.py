"""The pages stay true: references lead to code, links lead to files, and every field is explained."""

import dataclasses
import importlib
import json
import re
import tomllib
from pathlib import Path

import pytest

from semifl.experiments.config import decode
from semifl.experiments.experiment import start
from semifl.methods.semifl import SemiFL
from toys import toy_table

ROOT = Path(__file__).parent.parent
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DOCS]
SOURCES = [
    *(path for folder in ("src", "tests", "benchmarks") for path in sorted((ROOT / folder).rglob("*.py"))),
    *(ROOT / "src").rglob("*.toml"),
    *(ROOT / name for name in ("Makefile", "pyproject.toml", "constraints.txt")),
]
REFERENCE = re.compile(r"src/semifl/([\w/]+)\.py:([A-Za-z_][\w.]*\w)")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def page_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def explained(page: str) -> set[str]:
    """Every word that a page sets in code type."""
    text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    return set(re.findall(r"`([^`\n]+)`", text))


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_references_lead_to_code(page: Path) -> None:
    for path, dotted in REFERENCE.findall(page.read_text(encoding="utf-8")):
        module = f"semifl.{path}".replace("/", ".").removesuffix(".__init__")
        thing = importlib.import_module(module)
        for name in dotted.split("."):
            assert hasattr(thing, name), f"{page_name(page)}: {path}.py has no {dotted}"
            thing = getattr(thing, name)


def test_the_paper_page_has_references() -> None:
    assert len(REFERENCE.findall((ROOT / "docs/paper.md").read_text(encoding="utf-8"))) > 50


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_to_files(page: Path) -> None:
    targets = [link.partition("#")[0] for link in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]
    for target in filter(None, targets):
        assert (page.parent / target).exists(), f"{page_name(page)} links to {target}"


def test_readme_shows_the_two_commands() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in readme
    assert "make test" in readme


def test_readme_configuration_is_valid() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert decode(tomllib.loads(example)).data.name == "folder"
    assert decode(tomllib.loads(re.sub(r"^# (\w+ = )", r"\1", example, flags=re.MULTILINE))).split.clients == 10


def test_every_field_of_semifl_is_explained_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", (ROOT / "docs/methods/semifl.md").read_text(encoding="utf-8"), re.M)
    defaults = {name: default.strip().strip("`") for name, default in rows}
    for field in dataclasses.fields(SemiFL):
        assert defaults.get(field.name) == json.dumps(field.default), field.name


def test_every_key_of_a_run_is_explained(tmp_path: Path) -> None:
    table = toy_table()
    table["data"] = {**table["data"], "labeled": 12, "validation": 0.25}
    result = start(decode(table), tmp_path / "run")
    record = json.loads((tmp_path / "run/rounds.jsonl").read_text().splitlines()[0])
    environment = json.loads((tmp_path / "run/environment.json").read_text())
    words = explained("docs/run-directory.md")
    for key in (*record, *record["seconds"], *result, *environment):
        assert key in words, key


def test_every_file_of_a_run_is_explained(tmp_path: Path) -> None:
    start(decode(toy_table(client_buffers="kept")), tmp_path / "run")
    page = (ROOT / "docs/run-directory.md").read_text(encoding="utf-8")
    for path in (tmp_path / "run").iterdir():
        assert f"`{path.name}" in page, path.name
    for path in (tmp_path / "run/checkpoint").iterdir():
        assert path.suffix == ".safetensors" or f"`checkpoint/{path.name}/" in page, path.name


def test_the_map_shows_the_checked_layers() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    assert "\n".join(layers) in (ROOT / "docs/map.md").read_text(encoding="utf-8")


def test_the_map_names_every_module() -> None:
    page = (ROOT / "docs/map.md").read_text(encoding="utf-8")
    package = ROOT / "src/semifl"
    for path in package.rglob("*.py"):
        if path.parent.name not in ("cli", "presets") and not path.stem.startswith("__"):
            assert re.search(rf"\b{path.stem}\b", page), page_name(path)


def test_no_file_names_a_place_on_one_machine() -> None:
    private = "/" + "work/"
    for path in (*PAGES, *SOURCES):
        assert private not in path.read_text(encoding="utf-8"), page_name(path)
    for path in PAGES:
        assert "/" + "tmp/" not in path.read_text(encoding="utf-8"), page_name(path)

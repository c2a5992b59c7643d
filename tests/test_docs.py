"""The pages stay true: references lead to code, links lead to files, and every field is explained."""

import dataclasses
import importlib
import importlib.util
import json
import re
import subprocess
import sys
import tomllib
from itertools import takewhile
from pathlib import Path

import pytest

from semifl import registry
from semifl.cli.figure import ABOUT
from semifl.configuration.config import METHODS, MODELS, decode
from semifl.deploy.privacy import epsilon_of
from semifl.federation.recipe import Recipe
from semifl.fields import choices
from semifl.objectives import OBJECTIVES
from semifl.running.loop import start
from semifl.studies.presets import presets
from semifl.studies.sweeps import read_sweep
from semifl.studies.tables import own_table
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
PRESET = re.compile(r"`((?:cifar10|cifar100|svhn|fedmatch|fedrgd)-[\w.-]+)`")


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


# What the paper numbers: its figures, tables, algorithm and formulas, by the labels in its source.
LABELS = """fig:ssfl fig:fedsgd_cifar10 fig:theory fig:semifl fig:cifar10 fig:cifar10_quality fig:svhn fig:cifar100
    fig:ablation fig:randaugment tab:result tab:component tab:ablation tab:sBN tab:hyper alg:SemiFL thm_main eq_optimal
    eq_risk eq_NW key0 key1 key2 key3 key4 key6 key7 key8 key9 key10 key03 cond1 cond2 cond3 eq101 eq102 eq103 eq110
    eq120 eq121 eq122 eq130 eq131 eq200""".split()
# The statements of Algorithm 1, by a word that only its line has, in its order.
LINES = (
    "for each round t = 1", "W_s ← ServerUpdate", "Update the sBN statistics", "S_t ← max", "for each client m ∈ S_t",
    "Distribute: W_{u,m} ← W_s", "W_{u,m} ← ClientUpdate", "W_s = M_t⁻¹ Σ W_{u,m}", "after the loop",
    "Construct D_s", "randomly split D_s", "L_s ← ℓ", "W_s ← W_s − η∇L_s", "Return W_s",
    "Generate pseudo-labels", "D_fix = {", "If D_fix = ∅", "D_mix = sample", "randomly split D_fix and D_mix",
    "λ_mix ~ Beta(a, a)", "x_mix ← λ_mix", "L_fix ← ℓ", "L_mix ← λ_mix", "W_{u,m} ← W_{u,m} − η∇", "Return W_{u,m}",
)  # fmt: skip
# The formulas of the main text, which have no labels.
FORMULAS = (
    "supervised update",
    "pseudo-label",
    "D_fix",
    "D_mix",
    "Mixup",
    "L_fix",
    "L_mix",
    "client step",
    "averaging",
)


def test_the_paper_page_has_every_figure_table_formula_and_line() -> None:
    page = (ROOT / "docs/paper.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("|")]
    for label in LABELS:
        assert f"`{label}`" in page, label
    places = [
        next((n for n, row in enumerate(rows) if row.startswith(f"| {line}") or line in row), None) for line in LINES
    ]
    assert None not in places, LINES[places.index(None)]
    assert all(REFERENCE.search(rows[place]) for place in places if place is not None)
    main = page.partition("## Equations of the main text")[2].partition("\n## ")[0]
    for formula in FORMULAS:
        assert any(row.startswith(f"| {formula}") and REFERENCE.search(row) for row in main.splitlines()), formula


def test_every_figure_and_table_of_the_paper_page_has_a_command_that_is_known() -> None:
    page = (ROOT / "docs/paper.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if re.search(r"\| `(fig|tab):", line)]
    assert len(rows) == sum(label.startswith(("fig:", "tab:")) for label in LABELS)
    drawn = re.findall(r"`semifl figure (\w+)`", page)
    assert sorted(drawn) == sorted(ABOUT)
    assert all(re.search(r"`semifl (figure|table|show) ", row) for row in rows)


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


def fields_table(name: str) -> dict[str, str]:
    """From the table under "Fields" of a page: each field's default as it stands there."""
    page = (ROOT / f"docs/methods/{name}.md").read_text(encoding="utf-8")
    section = re.search(r"^## Fields\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert section, f"docs/methods/{name}.md has no section 'Fields'"
    rows = re.findall(r"^\| `([\w.]+)` \| ([^|]+) \|", section[1], re.MULTILINE)
    return {field: default.strip().strip("`") for field, default in rows}


def defaults(thing: type) -> dict[str, object]:
    """As a page has them: in JSON, and a section by its name and by what in it is not that name's own default."""
    found: dict[str, object] = {}
    for each in dataclasses.fields(thing):
        if each.name not in choices(thing):
            found[each.name] = json.loads(json.dumps(each.default))
            continue
        found[each.name] = choices(thing)[each.name].name_of(each.default)
        own, usual = dataclasses.asdict(each.default), dataclasses.asdict(type(each.default)())
        found |= {f"{each.name}.{key}": value for key, value in own.items() if value != usual[key]}
    return found


def read_default(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def test_the_recipe_page_explains_its_fields_with_their_defaults() -> None:
    assert {name: read_default(text) for name, text in fields_table("recipe").items()} == defaults(Recipe)


NAMED = {f"{METHODS}.{name}" for name in registry.names(METHODS)}


@pytest.mark.parametrize(
    ("package", "name"), [(package, name) for package in (METHODS, OBJECTIVES) for name in registry.names(package)]
)
def test_every_field_is_explained_with_its_default(package: str, name: str) -> None:
    """On the page of the method or objective; a field of the recipe may be left to the recipe's, if its default is."""
    thing = registry.find(package, name, "name")
    varied = thing.__mro__[1]  # a variant's page says only what it changes
    inherited = {} if not issubclass(thing, Recipe) else defaults(varied if varied.__module__ in NAMED else Recipe)
    page = {field: read_default(text) for field, text in fields_table(name).items()}
    assert inherited | page == defaults(thing)


def test_the_page_of_the_fast_network_has_its_fields_and_the_counts_of_the_benchmark() -> None:
    page = (ROOT / "docs/models/fast_cnn.md").read_text(encoding="utf-8")
    for name, value in defaults(registry.find(MODELS, "fast_cnn", "name")).items():
        assert f"| `{name}` | `{json.dumps(value)}` |" in page
    script = [sys.executable, "benchmarks/arithmetic.py"]
    ran = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, timeout=300, check=True)
    for line in map(json.loads, ran.stdout.splitlines()):
        counts = [value for value in line.values() if isinstance(value, int)]
        assert "| ".join(f"{count:,} " for count in counts) in page, line["case"]


def test_presets_that_pages_name_exist() -> None:
    known = {preset.name for preset in presets()}
    for page in PAGES:
        for name in PRESET.findall(page.read_text(encoding="utf-8")):
            assert name in known, f"{page_name(page)}: {name}"


def test_the_example_of_a_table_is_valid(tmp_path: Path) -> None:
    example, sweep = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/tables.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "sure.toml").write_text(example, encoding="utf-8")
    table = own_table(tmp_path / "sure.toml", "paper")
    assert (len(table.rows), len(table.columns), len({cell.name for cell in table.cells})) == (3, 2, 6)
    (tmp_path / "grid.toml").write_text(sweep, encoding="utf-8")
    assert len(read_sweep(tmp_path / "grid.toml").table.cells) == 3 * 2


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
    start(decode(toy_table(name="semifl_released")), tmp_path / "run")
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
    map_page = (ROOT / "docs/map.md").read_text(encoding="utf-8")
    assert unnamed_modules(map_page) == []
    rows = [line for line in map_page.splitlines() if re.match(r" {4}\w+(, \w+)*  ", line)]
    assert len(rows) >= 30
    for row in rows:  # the test would notice a row that is gone
        assert unnamed_modules(map_page.replace(f"{row}\n", "")), row


def unnamed_modules(map_page: str) -> list[str]:
    """Return the modules that the block of their own folder does not name at a place for names."""
    package, found = ROOT / "src/semifl", []
    for path in package.rglob("*.py"):
        folders = path.relative_to(package).parts[:-1]
        if {"cli", "presets"} & set(folders) or path.stem.startswith("__"):
            continue
        if not re.search(rf"\b{path.stem}\b", named(map_page, folders)):
            found.append(page_name(path))
    return found


def named(map_page: str, folders: tuple[str, ...]) -> str:
    """Return the names that the map lists for a folder: the first column of its rows, or its line where it has none."""
    tree = map_page.split("```")[1].splitlines()
    if not folders:
        return "\n".join(line for line in tree if re.match(r"  \w+[^/]*  ", line))
    depth = 2 * len(folders)
    heads = [number for number, line in enumerate(tree) if re.match(rf" {{{depth}}}(\w+, )*{folders[-1]}/", line)]
    if not heads:
        return ""
    rest = tree[heads[0] + 1 :]
    block = list(takewhile(lambda line: line.startswith(" " * (depth + 2)), rest))
    rows = [line for line in block if line.strip()]
    if not any(re.match(r" {4,6}\w+(, \w+)*  ", row) for row in rows):
        return "\n".join([tree[heads[0]], *rows])
    return "\n".join(re.split(r" {2,}", row.strip())[0] for row in rows)


def test_no_file_names_a_place_on_one_machine() -> None:
    private = "/" + "work/"
    for path in (*PAGES, *SOURCES):
        assert private not in path.read_text(encoding="utf-8"), page_name(path)
    for path in PAGES:
        assert "/" + "tmp/" not in path.read_text(encoding="utf-8"), page_name(path)


def test_the_reference_is_made_from_the_code_as_it_is() -> None:
    spec = importlib.util.spec_from_file_location("make_reference", ROOT / "docs/make_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (ROOT / "docs/reference.md").read_text(encoding="utf-8")
    assert page == module.page(), "run: python docs/make_reference.py"
    empty = [line for line in page.splitlines() if line.startswith("| `") and line.endswith("|  |")]
    assert empty == []  # every key is explained


def test_the_sweep_in_the_questions_is_valid(tmp_path: Path) -> None:
    (text,) = re.findall(r"```toml\n(.*?)```", (ROOT / "docs/faq.md").read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "labels.toml").write_text(text, encoding="utf-8")
    (tmp_path / "config.toml").write_text('[data]\nname = "digits"\n', encoding="utf-8")
    sweep = read_sweep(tmp_path / "labels.toml")
    assert [cell.config["data"]["labeled"] for cell in sweep.table.cells] == [20, 50, 100, 200]
    assert sweep.seeds == [0, 1, 2]


def test_the_worked_example_of_privacy_is_what_the_ledger_reckons() -> None:
    page = (ROOT / "docs/deployment.md").read_text(encoding="utf-8")
    delta = re.search(r"\*\*Worked example\.\*\* With δ = ([\d.e-]+)", page)
    assert delta is not None
    _, table = page[delta.end() :].split("\n\n", 2)[:2]
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    updates = [int(cell.split()[0]) for cell in head[1:]]
    assert (updates, len(rows)) == ([1, 10, 50, 100], 4)
    for noise, *cells in rows:
        told = [cell.removeprefix("ε = ") for cell in cells]
        assert told == [f"{epsilon_of({float(noise): count}, float(delta[1])):.2f}" for count in updates], noise


@pytest.mark.parametrize(("goal", "extras"), [("demo", set()), ("test", {".[dev]"})])
def test_a_goal_installs_what_it_needs_and_no_more(goal: str, extras: set[str]) -> None:
    words = ["make", "--dry-run", "--what-if=pyproject.toml", goal]
    lines = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    installed = {line.split("--editable ")[1].strip("'") for line in lines if "--editable" in line}
    assert installed == {"."} | extras

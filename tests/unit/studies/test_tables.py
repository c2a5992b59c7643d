"""Tables: which runs a cell stands for, what is missing, what is read back."""

import json
from pathlib import Path

import pytest

from semifl import toml
from semifl.configuration.config import decode, override
from semifl.errors import UserError
from semifl.records.directory import RunDirectory
from semifl.studies.adoption import adopt
from semifl.studies.presets import find, paper
from semifl.studies.recipes import refuse_other_recipes
from semifl.studies.scales import SCALES
from semifl.studies.table_runs import fill
from semifl.studies.tables import (
    TITLES,
    Cell,
    ResultTable,
    fingerprint,
    folder_name,
    measured,
    missing,
    own_table,
    paper_tables,
    run_directory,
    wanted_runs,
)
from toys import toy_table


def test_the_paper_has_all_its_cells() -> None:
    results, component, ablation, sbn, figure, authors = paper_tables("paper")
    # 2 baselines, 7 SSL rows, 4 partitions × (SemiFL, and HeteroFL, FedMatch, FedRGD as run and themselves); 6 columns
    assert (len(results.rows), len(results.columns)) == (2 + 7 + 4 * 7, 6)
    assert all(results.at(row, column) for row in results.rows for column in results.columns)
    assert all(bool(cell.value) == ("itself" not in cell.row) for cell in results.cells)
    assert (len(component.rows), len(component.columns)) == (2 + 3 * 2 + 1, 2)
    assert (len(ablation.rows), len(ablation.columns)) == (4, 2)
    assert (len(sbn.rows), len(sbn.columns)) == (2, 4)
    assert (len(figure.rows), len(figure.columns)) == (2 + 3, 2)
    assert [cell.value for cell in authors.cells] == ["44.95 (0.49)", "93.5"]


def test_a_printed_value_stands_beside_what_made_it() -> None:
    results, component, _, _, figure, _ = paper_tables("paper")
    made = {"FedMatch": "fedmatch", "FedRGD": "fedrgd_released", "HeteroFL": "fedavg", "SemiFL": "semifl_released"}
    for cell in results.cells:
        label, _, where = cell.row.partition(", ")
        if where and cell.value:
            assert cell.config["method"]["name"] == made[label], cell.row
    assert all(not cell.value for cell in component.cells if cell.row.endswith("with Mixup"))
    row = figure.at("FedAvg + FixMatch", "IID")
    assert row is not None
    assert (row.value, row.config["method"]["name"]) == ("40.26", "semifl_ablated")


@pytest.mark.parametrize("scale", SCALES)
def test_every_cell_is_a_valid_configuration(scale: str) -> None:
    for table in paper_tables(scale):
        for cell in table.cells:
            config = decode(cell.config)
            assert config.data.name == {"tiny": "digits", "small": "cifar10"}.get(scale, config.data.name)


def test_tiny_has_every_row_iid_and_with_two_classes() -> None:
    tiny, whole = paper_tables("tiny"), paper_tables("paper")
    for small, large in zip(tiny, whole, strict=True):
        assert {row for row in large.rows if "Dir" not in row} == set(small.rows)
    # Results: 9 rows of one place, 7 for each partition; then 9, 4, 2 and 5 rows at both; then the authors' two.
    assert sum(len(table.cells) for table in tiny) == (9 + 2 * 7) + 2 * (9 + 4 + 2 + 5) + 2
    # SemiFL itself stands in four tables, FedAvg + FixMatch in two, the supervised rows in three and there twice.
    assert len(wanted_runs(tiny, Path("nowhere"), [0])) == 65 - 2 * 3 - 2 - 2 * 4


def test_scaling_keeps_what_a_row_is_about() -> None:
    tiny = SCALES["tiny"]
    assert tiny(find("cifar10-4000-k2-parallel-batch").table)["method"]["training"] == "parallel"
    assert tiny(find("cifar10-250-iid-fedrgd").table)["model"]["norm"] == "group"
    assert tiny(find("cifar10-250-remixmatch").table)["method"]["objective"]["name"] == "remixmatch"
    assert tiny(find("cifar10-4000-iid-e1").table)["method"]["client_epochs"] == 1
    assert find("cifar10-4000-iid-e1").table["rounds"] == 800  # and the preset is left alone


def test_small_has_both_numbers_of_labels_and_three_partitions() -> None:
    results = paper_tables("small")[0]
    assert results.columns == ["cifar10-250", "cifar10-4000"]
    # 2 baselines, 7 SSL rows, 3 partitions × (SemiFL, and HeteroFL, FedMatch and FedRGD each as run and itself)
    assert len(results.rows) == 2 + 7 + 3 * 7
    assert all(results.at(row, column) for row in results.rows for column in results.columns)
    semifl = [results.at(f"SemiFL, non-IID, {name}", "cifar10-250") for name in ("K = 2", "Dir(0.3)")]
    assert [cell.config["data"]["partition"]["name"] for cell in semifl if cell] == ["classes", "dirichlet"]
    assert results.at("SemiFL, non-IID, Dir(0.1)", "cifar10-250") is None


def test_small_is_the_cell_with_a_fast_network_and_recipe() -> None:
    small = SCALES["small"]
    many, few = (small(find(f"cifar10-{labels}-k2").table) for labels in (4000, 250))
    assert (many["data"]["labeled"], few["data"]["labeled"]) == (4000, 250)
    assert many["data"]["partition"] == {"name": "classes", "per_client": 2}
    assert many["model"]["name"] == "fast_cnn"
    assert many["start"] == few["start"] == "labels"
    assert many["method"]["activity_rate"] == small(find("cifar10-iid-heterofl").table)["method"]["activity_rate"] < 0.1
    authors = small(find("fedrgd-authors").table)
    assert (authors["data"]["clients"], authors["method"]["activity_rate"]) == (10, 1.0)  # all, as its authors had it
    assert authors["method"]["warmup_rounds"] < authors["rounds"]
    released, itself = (small(find(f"cifar10-250-iid-fedmatch{suffix}").table) for suffix in ("-released", ""))
    assert released["method"]["threshold"] == 0.6
    assert "threshold" not in itself["method"]
    assert "start" not in small(find("cifar10-iid-fedavg").table)
    assert small(find("cifar10-4000-iid-e1").table)["method"]["client_epochs"] == 1
    assert small(find("cifar10-4000-iid-fedrgd").table)["model"]["norm"] == "group"
    fixmatch = small(find("cifar10-250-fixmatch").table)["method"]["objective"]
    assert fixmatch["threshold"] == few["method"]["threshold"]
    # Whose statistics is what these two cells differ in.
    whose = [small(find(f"cifar10-250-iid{suffix}").table)["method"]["statistics"] for suffix in ("", "-sbn-server")]
    assert whose == ["cohort", "server"]


def test_settings_hold_for_every_cell() -> None:
    settings = ["data.name=folder", "data.root=/pictures"]
    for table in paper_tables("small", settings):
        assert all(decode(cell.config).data.name == "folder" for cell in table.cells)
    assert folder_name("paper", "small", []) == "paper-small"
    named = folder_name("paper", "small", settings)
    assert named.startswith("paper-small-")
    assert named == folder_name("paper", "small", settings[::-1]) != folder_name("paper", "small", settings[:1])
    with pytest.raises(UserError, match=r"unknown key data\.rot"):
        paper_tables("tiny", ["data.rot=1"])


def test_settings_hold_for_an_own_table(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(OWN)
    plain, changed = own_table(path, "paper"), own_table(path, "paper", ["method.threshold=0.5"])
    assert {decode(cell.config).method.thing.threshold for cell in changed.cells} == {0.5}
    assert not {cell.name for cell in plain.cells} & {cell.name for cell in changed.cells}


def test_every_cell_of_the_paper_names_a_known_table() -> None:
    assert {cell.table for cell in paper.cells()} == {*TITLES, ""}


def write_result(folder: Path, cell: Cell, seed: int, accuracy: object) -> None:
    directory = run_directory(folder, cell, seed)
    directory.mkdir(parents=True)
    (directory / "result.json").write_text(json.dumps({"accuracy": accuracy}))


def test_results_are_read_by_seed_and_damaged_ones_left_out(tmp_path: Path) -> None:
    cell, other = Cell("a", "A", "x", {}), Cell("a-b", "B", "x", {})
    write_result(tmp_path, cell, 0, 90.5)
    write_result(tmp_path, cell, 10, 80.0)
    write_result(tmp_path, other, 1, 70.0)
    write_result(tmp_path, cell, 2, "many")
    run_directory(tmp_path, cell, 3).mkdir()
    (run_directory(tmp_path, cell, 3) / "result.json").write_text("{")
    assert measured(tmp_path, cell, "accuracy") == {0: 90.5, 10: 80.0}
    assert measured(tmp_path, other, "accuracy") == {1: 70.0}
    table = ResultTable("", (cell, other))
    todo = [(each.name, seed) for each, seed in missing(wanted_runs([table, table], tmp_path, [0, 1]))]
    assert todo == [("a-b", 0), ("a", 1)]


OWN = """
title = "Mine"
[rows.SemiFL]
preset = "digits"
[rows."no mixup"]
preset = "digits"
method.mix_weight = 0.0
[columns.iid]
data.partition.name = "iid"
[columns.skewed]
data.partition = { name = "classes", per_client = 2 }
"""


def test_an_own_table_is_rows_times_columns(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(OWN)
    table = own_table(path, "paper")
    assert (table.title, table.rows, table.columns) == ("Mine", ["SemiFL", "no mixup"], ["iid", "skewed"])
    cell = table.at("no mixup", "skewed")
    assert cell is not None
    config = decode(cell.config)
    assert (config.method.thing.mix_weight, config.split.partition.per_client) == (0.0, 2)
    assert len({each.name for each in table.cells}) == 4


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("title = 'x'", "no rows"),
        ("[rows.a]\npreset = 'digitz'", "digits"),
        ("[rows.a]\nmethod.threshhold = 1.0", "threshold"),
        ("rows = 3", "rows"),
        ("[rows]\na = 3", "sections"),
        ("[row.a]\n[rows.b]", "row"),
        ("columns = 3\n[rows.a]", "columns are sections"),
        ("columns = {}\n[rows.a]", "columns are sections"),
        ("[rows.a]\nseed = 1", "--seeds"),
    ],
)
def test_a_mistake_in_a_table_is_one_sentence(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=said):
        own_table(path, "paper")


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failed_cell_does_not_stop_the_others(jobs: int, tmp_path: Path) -> None:
    good = {**toy_table(), "rounds": 1, "labels_only": False}
    bad = {**good, "data": {**good["data"], "labeled": 10_000}}
    cells = [Cell("bad", "bad", "x", bad), Cell("good", "good", "x", good)]
    outcomes = {o.cell.name: o for o in fill([(cell, 0) for cell in cells], tmp_path, jobs, 1, "cpu")}
    assert outcomes["bad"].failed
    assert not outcomes["good"].failed
    assert list(measured(tmp_path, cells[1], "accuracy")) == [0]


def test_an_unfinished_run_is_resumed(tmp_path: Path) -> None:
    config = {**toy_table(), "rounds": 2, "labels_only": False}
    cell = Cell("cell", "cell", "x", config)
    list(fill([(cell, 3)], tmp_path / "whole", 1, 1, "cpu"))
    list(fill([(cell, 3)], tmp_path / "cut", 1, 1, "cpu"))
    (run_directory(tmp_path / "cut", cell, 3) / "result.json").unlink()
    (outcome,) = fill(
        missing(wanted_runs([ResultTable("", (cell,))], tmp_path / "cut", [3])), tmp_path / "cut", 1, 1, "cpu"
    )
    assert not outcome.failed
    whole, cut = (measured(tmp_path / name, cell, "accuracy") for name in ("whole", "cut"))
    assert whole == cut


def test_runs_of_an_earlier_version_are_found_again(tmp_path: Path) -> None:
    """One that did not know the key `start`, and so made another mark; of two rows only the one that is the same."""
    path = tmp_path / "mine.toml"
    path.write_text(OWN)
    table = own_table(path, "paper")
    cell, other = table.cells[:2]
    same, changed = (tmp_path / f"{each.name[:-6]}0a1b2c-seed-3" for each in (cell, other))
    for directory, config in ((same, cell.config), (changed, {**other.config, "rounds": 7})):
        directory.mkdir()
        full = decode({**config, "seed": 3}).table()
        del full["start"]
        (directory / "config.toml").write_text(toml.dumps(full))
        (directory / "result.json").write_text('{"format": 1, "accuracy": 81.5}')
    adopt([table], tmp_path)
    assert not same.exists()
    assert (run_directory(tmp_path, cell, 3) / "result.json").is_file()
    assert changed.exists()
    assert (cell, 3) not in missing(wanted_runs([table], tmp_path, [3]))
    assert (other, 3) in missing(wanted_runs([table], tmp_path, [3]))


def test_a_run_that_settled_its_precision_is_found_again(tmp_path: Path) -> None:
    cell = Cell("toy-abcdef", "toy", "x", {**toy_table(), "precision": "auto"})
    for mark, precision, rounds in (("012345", "bf16", 3), ("543210", "bf16", 4)):
        directory = tmp_path / f"toy-{mark}-seed-{rounds}"
        directory.mkdir()
        full = decode({**cell.config, "precision": precision, "rounds": rounds}).table()
        (directory / "config.toml").write_text(toml.dumps(full))
    adopt([ResultTable("", (cell,))], tmp_path)
    assert run_directory(tmp_path, cell, 3).exists()
    assert not run_directory(tmp_path, cell, 4).exists()


def test_a_run_in_use_keeps_its_name(tmp_path: Path) -> None:
    config = {**toy_table(), "rounds": 1}
    cell = Cell("toy-abcdef", "toy", "x", config)
    directory = tmp_path / "toy-012345-seed-0"
    directory.mkdir()
    (directory / "config.toml").write_text(toml.dumps(decode(config).table()))
    with RunDirectory(directory).locked():
        adopt([ResultTable("", (cell,))], tmp_path)
    assert directory.exists()
    adopt([ResultTable("", (cell,))], tmp_path)
    assert not directory.exists()


def test_the_fingerprint_covers_defaults_too(monkeypatch: pytest.MonkeyPatch) -> None:
    config = find("digits").table
    before = fingerprint(config)
    assert fingerprint({**config, "seed": 0}) == before  # stated or not, the value is the same
    assert fingerprint({**config, "method": {**config["method"], "lr": 0.02}}) != before
    assert fingerprint({**config, "method": {**config["method"], "lr": 0.03}}) == before


def test_a_run_of_a_cell_with_another_recipe_is_told(tmp_path: Path) -> None:
    """Names of the paper's cells stay when a scale changes; a run from before is not the cell's."""
    small = [cell for table in paper_tables("small") for cell in table.cells]
    cell = next(each for each in small if each.name == "cifar10-250-iid")
    directory = run_directory(tmp_path, cell, 1)
    directory.mkdir()
    full = {**decode(cell.config).table(), "seed": 1, "precision": "bf16"}  # as another machine computes
    (directory / "config.toml").write_text(toml.dumps(full))
    refuse_other_recipes(small, tmp_path)
    (directory / "config.toml").write_text(toml.dumps(override(full, ["method.activity_rate=0.1"])))
    with pytest.raises(UserError, match=r"iid-seed-1 has another recipe .*activity_rate is 0\.1 there"):
        refuse_other_recipes(small, tmp_path)
    for other in ("data.validation=0.5", "stop.minutes=1.0", "data.clients=50"):
        (directory / "config.toml").write_text(toml.dumps(override(full, [other])))
        with pytest.raises(UserError, match="has another recipe"):
            refuse_other_recipes(small, tmp_path)
    (directory / "config.toml").write_text(toml.dumps(override(full, ["test_every=5", "data.root=elsewhere"])))
    refuse_other_recipes(small, tmp_path)

"""A file that anybody may have written runs no code, unless this person has run that code or trusts the file."""

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import semifl
from semifl import registry
from semifl.cli import invoke
from semifl.configuration.code import code_in
from semifl.configuration.config import DATASETS, METHODS, MODELS, decode, of_run
from semifl.deploy.pictures import HUB_PICTURES
from semifl.errors import UserError
from semifl.fields import choices
from semifl.records.directory import RunDirectory
from semifl.running.loop import changes, resume, start
from semifl.studies.tables import own_table
from semifl.trained.modelfile import FORMAT, load_model
from toys import toy_table

FACTS = {
    **{"class_names": ["a", "b"], "mean": [0.5], "std": [0.5]},
    **{"may_flip": True, "channels": 1, "size": 8},
}
TESTS = Path(__file__).parents[2]
EVIL = "import pathlib\n\npathlib.Path(__file__).with_name('ran').touch()\n\n\ndef build():\n    raise ValueError\n"


@pytest.fixture(autouse=True)
def nobody_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person who has run nothing so far."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config" / "semifl" / "trusted-code"


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file that is there once the module `evil` has been imported."""
    (tmp_path / "evil.py").write_text(EVIL)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "evil", raising=False)
    return tmp_path / "ran"


def model_file(path: Path, model: object) -> Path:
    about = {"format": FORMAT, "facts": FACTS, "model": model}
    save_file({"w": torch.zeros(1)}, path, {"semifl": json.dumps(about)})
    return path


def run_directory(path: Path, **sections: object) -> Path:
    table = {"data": {"name": "digits"}, "model": {"name": "cnn"}, "method": {"name": "semifl"}, **sections}
    RunDirectory(path).create(table, {})
    return path


@pytest.mark.parametrize("form", [dict, lambda model: [list(pair) for pair in model.items()]])
def test_a_model_files_header_runs_nothing(tmp_path: Path, form) -> None:
    done = tmp_path / "done"
    file = model_file(tmp_path / "model.safetensors", form({"name": "subprocess:getoutput", "cmd": f"touch {done}"}))
    with pytest.raises(UserError):
        load_model(file)
    assert not done.exists()


def test_every_verb_that_reads_a_model_says_what_to_do(tmp_path: Path, ran: Path, capsys) -> None:
    run = run_directory(tmp_path / "run", model={"name": "evil:build"})
    model_file(run / "model.safetensors", {"name": "evil:build"})
    (run / "rounds.jsonl").write_text("")
    picture = str(tmp_path / "evil.py")
    for words in (["predict", picture], ["evaluate"], ["export"], ["show"], ["check"], ["check", "--reproduce"]):
        assert invoke([words[0], str(run), *words[1:]]) == 2
        error = capsys.readouterr().err
        assert "names code, model.name = 'evil:build'" in error
        assert "semifl trust" in error
    with pytest.raises(UserError, match="semifl trust"):
        resume(run)
    assert not ran.exists()
    (run / "result.json").write_text(json.dumps(SUMMARY))
    with pytest.raises(UserError, match="semifl trust"):
        semifl.load(run)
    assert not ran.exists()


SUMMARY = {
    **{"method": "semifl", "dataset": "digits", "seed": 0, "rounds": 1, "accuracy": 1.0, "balanced_accuracy": 1.0},
    **{"best_accuracy": 1.0, "best_round": 1, "best_test_accuracy": 1.0, "best_test_round": 1, "bytes_up": 0},
    **{"labels_only_accuracy": None, "seconds": 1.0, "seconds_per_round": 0.5, "bytes_down": 0},
}


@pytest.mark.parametrize(
    "sections",
    [
        {"data": {"name": "evil:build"}},
        {"method": {"name": "evil:build"}},
        {"data": {"name": "digits", "weak_view": "evil:build"}},
        {"method": {"name": "centralized", "objective": "evil:build"}},
        {"method": {"name": "centralized", "objective": {"name": "evil:build"}}},
    ],
)
def test_a_run_directory_imports_nothing_wherever_it_names_it(tmp_path: Path, ran: Path, sections: dict) -> None:
    run = run_directory(tmp_path / "run", **sections)
    (run / "rounds.jsonl").write_text("")
    with pytest.raises(UserError, match="names code"):
        of_run(RunDirectory(run))
    changes(RunDirectory(run), decode({}))  # a run of one's own into this directory
    assert not ran.exists()


def test_what_a_person_runs_is_known_afterwards_and_only_that(tmp_path: Path, nobody_known: Path, capsys) -> None:
    start(decode({**toy_table(), "rounds": 1, "labels_only": False}), tmp_path / "run")
    assert [line.split(" ", 1)[1] for line in nobody_known.read_text().splitlines()] == [
        f"toys:ToyData\t{TESTS}",  # and where it was imported from
        f"toys:toy_model\t{TESTS}",
    ]
    shutil.copytree(tmp_path / "run", tmp_path / "elsewhere")
    load_model(tmp_path / "elsewhere" / "model.safetensors")
    resume(tmp_path / "run", rounds=2)
    assert len(nobody_known.read_text().splitlines()) == 2  # nothing twice
    assert invoke(["evaluate", str(tmp_path / "run")]) == 0
    # The same function with other arguments is another thing: who chooses arguments may choose what is done.
    other = model_file(tmp_path / "other.safetensors", {"name": "toys:toy_model", "hidden": 7})
    with pytest.raises(UserError, match="semifl trust"):
        load_model(other)


def test_a_run_that_was_killed_when_its_directory_began_can_be_gone_on_with(tmp_path: Path, monkeypatch) -> None:
    class Killed(BaseException):
        pass

    def die(self: object, config: object) -> None:
        write(self, config)
        raise Killed

    write = RunDirectory.write_config
    monkeypatch.setattr(RunDirectory, "write_config", die)
    with pytest.raises(Killed):
        start(decode({**toy_table(), "rounds": 1, "labels_only": False}), tmp_path / "run")
    resume(tmp_path / "run")


def test_trust_is_said_once(tmp_path: Path, nobody_known: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    start(decode({**toy_table(), "rounds": 1, "labels_only": False}), tmp_path / "run")
    nobody_known.unlink()  # as if it came from a colleague
    assert invoke(["predict", str(tmp_path / "run"), str(tmp_path)]) == 2
    assert invoke(["trust", str(tmp_path / "run")]) == 0
    assert "trusted: model.name = toys:toy_model" in capsys.readouterr().out
    load_model(tmp_path / "run" / "model.safetensors")
    of_run(RunDirectory(tmp_path / "run"))
    assert invoke(["trust", str(model_file(tmp_path / "plain.safetensors", {"name": "cnn"}))]) == 0
    assert "names no code" in capsys.readouterr().out
    assert invoke(["trust", str(tmp_path / "nothing")]) == 2
    # Where nothing can be remembered a run goes on, and to say trust is one sentence.
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    assert invoke(["trust", str(tmp_path / "run")]) == 2
    assert "cannot remember what you trust" in capsys.readouterr().err
    start(decode({**toy_table(), "rounds": 1, "labels_only": False}), tmp_path / "again")


# Every key that can name code, from the open folders and the choices within their classes.
KEYS = sorted(
    {
        f"{section}.{key}{name}"
        for section, package in (("data", DATASETS), ("model", MODELS), ("method", METHODS))
        for thing in registry.names(package)
        for key in choices(registry.find(package, thing, section))
        for name in ("", ".name")
    }
    | {"data.name", "data.weak_view", "data.strong_view", "data.partition", "data.partition.name"}
    | {"model.name", "method.name"}
)
NAMES = ["evil:Thing", "python:Thing", "python:", "evil.python:Thing", "semifl.evil:Thing"]
VERBS = "resume evaluate export show report check".split()


def test_the_keys_that_can_name_code_are_found() -> None:
    assert {"method.objective.name", "method.server_optimizer", "method.aggregation", "data.partition"} <= set(KEYS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("key", KEYS)
def test_no_verb_imports_what_a_strangers_run_names(
    key: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("evil", "python"):  # beside the run, where the verbs are typed, as in a zip file with both
        (tmp_path / f"{module}.py").write_text(EVIL)
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "mine.toml").write_text("[rows.one]\n")
    cell = own_table(tmp_path / "mine.toml", "tiny").cells[0].name
    for folder in (tmp_path / "run", tmp_path / "tables" / f"{cell[:-6]}012345-seed-0"):
        table = naming(key, name)
        RunDirectory(folder).create(table, {})
        (folder / "rounds.jsonl").write_text("")
        (folder / "result.json").write_text(json.dumps(SUMMARY))
        model_file(folder / "model.safetensors", table["model"])
    for words in (*([verb, "run"] for verb in VERBS), ["predict", "run", "evil.py"], ["check", "run", "--reproduce"]):
        assert invoke(words) in (0, 1, 2), words
    assert invoke(["compare", "run", "run"]) in (0, 1, 2)
    assert invoke(["table", "mine.toml", "--scale", "tiny", "--out", "tables"]) == 0
    assert not (tmp_path / "ran").exists()
    assert "semifl trust" in capsys.readouterr().err or not code_in(table)


def naming(key: str, name: str) -> dict:
    """Return a configuration with this name as the value of the key, of a method that has the key."""
    method = {"name": "centralized" if "objective" in key else "semifl"}
    table = {"data": {"name": "digits"}, "model": {"name": "cnn"}, "method": method}
    section, *inner, last = key.split(".")
    at = table[section]
    for each in inner:
        at = at.setdefault(each, {})
    at[last] = name
    return table


def test_only_the_name_of_the_data_may_lead_into_semifl_itself() -> None:
    table = {
        "positive": "a:b",  # a class may be called anything
        "data": {"name": HUB_PICTURES, "root": "/a/b:c", "weak_view": "python:shifted"},
        "model": {"name": "semifl.durable:replace_text"},  # as a model, this would write a file of the stranger's
        "method": {"name": "centralized", "objective": {"name": "own:Loss"}},
    }
    assert code_in(table) == {"model.name": "semifl.durable:replace_text", "method.objective.name": "own:Loss"}


@pytest.mark.parametrize(
    "name", ["semifl.durable:replace_text", "semifl.cli:main", "semifl.deploy.pictures:count_pictures"]
)
def test_nothing_of_semifl_is_called_as_data_but_data(name: str) -> None:
    with pytest.raises(UserError, match="is not a dataclass with a method 'load'"):
        decode({"data": {"name": name}})

"""A method of a person's own: its bugs, its versions, and where it lies."""

import json
import sys
from pathlib import Path

import pytest

from semifl import toml
from semifl.cli import invoke
from semifl.records.directory import RunDirectory
from toys import toy_table

METHOD = """from dataclasses import dataclass
from semifl.methods.semifl import SemiFL


@dataclass(frozen=True)
class Mine(SemiFL):
    factor: float = 1.0

    def client_loss(self, network, batch):
        terms = super().client_loss(network, batch)
        return BODY
"""
SOUND = "terms | {'loss': self.factor * terms['loss']}"
BUG = "terms['no such term']"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a method, in which the program runs as from the command line."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    project = tmp_path / "project"
    project.mkdir()
    method = {"name": "my_method:Mine", "client_epochs": 1, "server_epochs": 1, "threshold": 0.0, "activity_rate": 1.0}
    (project / "mine.toml").write_text(toml.dumps({**toy_table(), "rounds": 2, "method": method}))
    enter(project, monkeypatch)
    write(SOUND)
    return project


def enter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a new process that starts in a folder: nothing imported, and that folder last on the path."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if "project" not in each] + [str(folder)])
    sys.modules.pop("my_method", None)


def write(body: str) -> None:
    Path("my_method.py").write_text(METHOD.replace("BODY", body))
    sys.modules.pop("my_method", None)


def run(out: str, *words: str) -> int:
    return invoke(["run", "mine.toml", "--out", out, "--workers", "1", "--set", "labels_only=false", *words])


def test_a_bug_is_told_with_its_line_and_its_traceback_is_kept(folder: Path, capsys) -> None:
    write(BUG)
    assert run("run") == 1
    error = capsys.readouterr().err
    assert "client 0 failed in round 1: KeyError: 'no such term' (my_method.py:11)" in error
    assert "its traceback is in run/run.log" in error
    assert "Traceback" not in error
    log = Path("run/run.log").read_text()
    assert "the run ended" in log
    assert 'my_method.py", line 11, in client_loss' in log

    assert invoke(["resume", "run", "--workers", "1", "--traceback"]) == 1
    assert 'my_method.py", line 11, in client_loss' in capsys.readouterr().err

    assert invoke(["check", "mine.toml", "--workers", "1"]) == 2
    error = capsys.readouterr().err
    assert error.endswith("semifl: KeyError: 'no such term' (my_method.py:11); --traceback shows the rest\n")
    assert "Traceback" not in error


def test_each_failure_that_a_run_survives_is_logged(folder: Path, capsys) -> None:
    write(BUG)
    assert run("run", "--set", "max_failures=100") == 0
    failed = [client for record in RunDirectory(Path("run")).rounds() for client in record["failed"]]
    log = Path("run/run.log").read_text()
    assert len(failed) == log.count('my_method.py", line 11') > 1
    assert "client 0 failed in round 2" in log


def test_a_table_shows_a_failed_cells_traceback_only_if_asked(folder: Path, capsys) -> None:
    write(BUG)
    Path("table.toml").write_text('[rows.mine]\nconfig = "mine.toml"\n')
    words = ["table", "table.toml", "--seeds", "0", "--jobs", "1"]
    assert invoke(words) == 1
    error = capsys.readouterr().err
    assert "(my_method.py:11)" in error
    assert "Traceback" not in error
    for asked in ([*words, "--traceback"], ["--traceback", *words]):
        assert invoke(asked) == 1
        assert 'my_method.py", line 11, in client_loss' in capsys.readouterr().err


def test_a_run_remembers_which_code_it_was_made_with(folder: Path, capsys) -> None:
    assert run("run") == 0
    before = json.loads(Path("run/environment.json").read_text())
    assert before["own_code"]["my_method:Mine"]["file"] == str(folder / "my_method.py")
    assert len(before["digest"]) == 12
    write(SOUND + "  # another")
    capsys.readouterr()
    assert invoke(["resume", "run", "--rounds", "3", "--workers", "1"]) == 0
    assert "the code of my_method:Mine has changed since round 2" in capsys.readouterr().err
    versions = RunDirectory(Path("run")).code_versions()
    assert [each["semifl"] for each in versions] == [before["digest"]] * 2
    assert versions[0]["my_method:Mine"] != versions[1]["my_method:Mine"]
    assert invoke(["resume", "run", "--rounds", "4", "--workers", "1"]) == 0
    assert "has changed" not in capsys.readouterr().err


def test_a_run_goes_on_from_any_folder(folder: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    assert run("run") == 0
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    enter(elsewhere, monkeypatch)
    assert invoke(["resume", str(folder / "run"), "--rounds", "3", "--workers", "1"]) == 0
    assert sys.modules["my_method"].__file__ == str(folder / "my_method.py")


def test_its_own_file_comes_before_one_of_that_name_here(folder: Path, tmp_path: Path, monkeypatch) -> None:
    assert run("run") == 0
    other = tmp_path / "other"
    other.mkdir()
    enter(other, monkeypatch)
    (other / "my_method.py").write_text("raise SystemExit('the wrong file')")
    assert invoke(["resume", str(folder / "run"), "--rounds", "3", "--workers", "1"]) == 0


def test_a_runs_word_adds_no_folder(folder: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    """A directory from elsewhere names exactly what this person has run, and a folder that nobody has trusted."""
    assert run("run") == 0
    evil = tmp_path / "evil"
    evil.mkdir()
    (evil / "my_method.py").write_text("from pathlib import Path\nPath(__file__).with_name('ran').touch()\n")
    record = Path("run/environment.json")
    facts = json.loads(record.read_text())
    facts["own_code"]["my_method:Mine"]["folder"] = str(evil)
    record.write_text(json.dumps(facts))
    enter(tmp_path, monkeypatch)
    assert invoke(["resume", str(folder / "run"), "--rounds", "3", "--workers", "1"]) == 0  # by the person's own file
    assert sys.modules["my_method"].__file__ == str(folder / "my_method.py")
    assert not (evil / "ran").exists()

    enter(tmp_path, monkeypatch)
    (tmp_path / "config" / "semifl" / "trusted-code").unlink()
    assert invoke(["resume", str(folder / "run"), "--rounds", "4", "--workers", "1"]) == 2
    capsys.readouterr()
    assert invoke(["trust", str(folder / "run")]) == 0
    assert f"method.name = my_method:Mine from {evil}" in capsys.readouterr().out  # said before it can run

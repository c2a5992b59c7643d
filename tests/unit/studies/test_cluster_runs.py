"""Many runs on a Dask cluster of processes on loopback: the same bits as here, wherever they are written."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from dask_net import DaskNet
from faults.harness import assert_same
from semifl import toml
from semifl.cli import invoke
from semifl.configuration.config import decode
from semifl.federation.cluster.address import Cluster
from semifl.federation.workers import Log
from semifl.running.context import Silent
from semifl.running.loop import start
from semifl.studies.cluster_runs import Errand, files_of, fill_on, opened, run_there, write_files
from semifl.studies.tables import Cell
from toys import toy_table

SILENT = Log(lambda event, **facts: None, lambda sentence: None)
TOY = {**toy_table(), "rounds": 2, "labels_only": False}


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskNet]:
    with DaskNet(tmp_path_factory.mktemp("dask")) as running:
        running.start(2)
        yield running


@pytest.fixture
def reference(tmp_path: Path) -> Path:
    start(decode({**TOY, "seed": 1}), tmp_path / "reference")
    return tmp_path / "reference"


class Leave(Silent):
    def round(self, record: object, best: float) -> None:
        raise KeyboardInterrupt


def test_cells_are_filled_with_the_bits_of_runs_here_and_one_that_fails_is_named(
    net: DaskNet, tmp_path: Path, reference: Path
) -> None:
    wrong = {**TOY, "data": {**TOY["data"], "labeled": 10_000}}
    todo = [(Cell("toy", "toy", "", TOY), 0), (Cell("wrong", "wrong", "", wrong), 0), (Cell("toy", "toy", "", TOY), 1)]
    folder = tmp_path / "runs"
    done = {(each.cell.name, each.seed): each for each in fill_on(Cluster(net.address, "x"), todo, folder, SILENT)}
    assert not done["toy", 0].failed
    assert not done["toy", 1].failed
    assert done["wrong", 0].failed
    assert "10000" in done["wrong", 0].text
    assert_same(folder / "toy-seed-1", reference)
    assert list(folder.glob(".seen-*")) == []


def test_runs_of_workers_that_do_not_see_the_folder_are_brought_here(
    net: DaskNet, tmp_path: Path, reference: Path
) -> None:
    errand = Errand(Cell("toy", "toy", "", TOY), 1, tmp_path / "not-theirs", "no such mark", "cpu")
    with opened(Cluster(net.address, "x"), SILENT) as pool:
        ((number, brought),) = pool.as_done(run_there, [errand])
    assert number == 0
    assert not (tmp_path / "not-theirs").exists()
    write_files(tmp_path / "here", brought.files)
    assert_same(tmp_path / "here", reference)
    assert set(files_of(tmp_path / "here")) == set(files_of(reference))


def test_a_worker_tells_runs_of_one_name_apart_and_keeps_none_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("semifl.federation.cluster.worker.scratch", lambda: tmp_path / "scratch")
    for rounds in (1, 2):
        cell = Cell("toy", "toy", "", {**TOY, "rounds": rounds})
        brought = run_there(None, None, Errand(cell, 1, tmp_path / "not-theirs", "no such mark", "cpu"))
        assert not brought.done.failed, brought.done.text
        assert len(brought.files["rounds.jsonl"].splitlines()) == rounds
    assert [path for path in (tmp_path / "scratch").rglob("*") if path.is_file()] == []


def test_sweep_and_compare_from_the_command_line(
    net: DaskNet, tmp_path: Path, reference: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("toy.toml").write_text(toml.dumps(TOY))
    Path("grid.toml").write_text('config = "toy.toml"\nseeds = [1]\n[grid]\n"method.threshold" = [0.3, 0.9]\n')
    assert invoke(["sweep", "grid.toml", "--on", net.address]) == 0
    assert "method.threshold=0.9" in capfd.readouterr().out
    (same,) = Path("runs/sweeps/grid").glob("method.threshold-0.3-*-seed-1")
    assert_same(same, reference)

    with pytest.raises(KeyboardInterrupt):
        start(decode({**TOY, "seed": 1, "rounds": 3}), tmp_path / "left", observer=Leave())
    assert invoke(["compare", str(reference), str(tmp_path / "left")]) == 2
    assert invoke(["compare", str(reference), str(tmp_path / "left"), "--on", net.address]) == 0
    assert (tmp_path / "left/result.json").exists()

    assert invoke(["sweep", "grid.toml", "--on", net.address, "--jobs", "2"]) == 2
    assert "--on does not go with --jobs or --workers" in capfd.readouterr().err


def test_a_cluster_file_says_what_is_wrong_with_it(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cluster.toml"
    for content, told in (
        ('schedular = "tcp://head"\n', "unknown key 'schedular'; did you mean 'scheduler'?"),
        ("direct = false\n", "does not say where the scheduler is"),
        ('scheduler = "http://head"\n', "cluster.toml: 'http://head' is not the address of a scheduler"),
        ('scheduler = "tls://head"\n[tls]\nca = "ca.pem"\n', "[tls] has the keys ca, cert and key"),
        ('scheduler = "tls://h"\n[tls]\nca = "a"\ncert = "b"\nkey = "c"\n', "tls.ca = 'a' is not a file"),
    ):
        file.write_text(content)
        assert invoke(["run", "digits", "--on", str(file), "--out", str(tmp_path / "run")]) == 2
        assert told in capfd.readouterr().err
    assert not (tmp_path / "run").exists()

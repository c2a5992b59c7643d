"""The command line in-process: what a person types, right and wrong."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import semifl
from semifl import toml
from semifl.cli import invoke
from toys import COLOURS, toy_table

Output = pytest.CaptureFixture[str]


def paint(path: Path, colour, size: tuple[int, int] = (12, 10), seed: int = 0) -> None:
    noise = np.random.default_rng(seed).integers(-20, 20, (size[1], size[0], 3))
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray((np.array(colour) + noise).clip(0, 255).astype(np.uint8)).save(path)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A person's own pictures: three classes, two sites."""
    root = tmp_path_factory.mktemp("pictures")
    for label, colour in zip(("red", "green", "blue"), COLOURS.tolist(), strict=True):
        for number in range(4):
            paint(root / "labeled" / label / f"{number}.png", colour, seed=number)
            paint(root / "test" / label / f"{number}.png", colour, seed=10 + number)
            for site in ("north", "south"):
                paint(root / "clients" / site / f"{label}-{number}.png", colour, (9, 14), seed=20 + number)
    return root


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SEMIFL_DATA", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def run(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on those pictures."""
    out = tmp_path_factory.mktemp("runs") / "first"
    table = toy_table()
    table["data"] = {"name": "folder", "root": str(pictures), "size": 8}
    config = out.parent / "config.toml"
    config.write_text(toml.dumps(table))
    assert invoke(["run", str(config), "--out", str(out), "--workers", "1"]) == 0
    return out


def test_help_does_not_import_torch() -> None:
    code = "import sys; from semifl.cli import invoke; invoke(['--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def test_run_says_what_the_clients_brought_and_where_the_run_is(run: Path, capsys: Output, pictures: Path) -> None:
    assert invoke(["resume", str(run)]) == 0  # finished: says it again
    out = capsys.readouterr().out
    result = json.loads((run / "result.json").read_text())
    assert f"accuracy     {result['accuracy']:.1f} %" in out
    assert f"{result['accuracy'] - result['labels_only_accuracy']:+.1f} points" in out
    assert str(run) in out
    assert Image.open(run / "curves.png").size[0] > 500
    assert 'name = "site"' in (run / "config.toml").read_text()
    assert "clients = 2" in (run / "config.toml").read_text()


def test_show_a_preset_prints_every_value(capsys: Output) -> None:
    assert invoke(["show", "cifar10-250-iid", "--set", "method.threshold=0.5"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("# SemiFL, IID, cifar10 with 250 labels; paper: 88.2 (0.3)")
    assert "threshold = 0.5" in out
    assert "weight_decay = 0.0005" in out


def test_show_a_run_prints_its_result(run: Path, capsys: Output) -> None:
    assert invoke(["show", str(run)]) == 0
    assert '"labels_only_accuracy"' in capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("presets", "digits"),
        ("data", "svhn"),
        ("models", "wide_resnet"),
        ("methods", "semifl"),
        ("objectives", "remixmatch"),
        ("partitions", "dirichlet"),
    ],
)
def test_list(kind: str, name: str, capsys: Output) -> None:
    assert invoke(["list", kind]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith(f"{name} ") and len(line) > len(name) + 5 for line in lines)


def test_list_takes_a_pattern(capsys: Output) -> None:
    assert invoke(["list", "presets", "svhn-250-*d*"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert {"svhn-250-dir0.1", "svhn-250-dir0.3", "svhn-250-iid", "svhn-250-k2-fedmatch", "svhn-250-uda"} <= set(names)
    assert all(name.startswith("svhn-250-") and "d" in name[9:] for name in names)


def test_check_estimates_before_anything_is_trained(capsys: Output, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke(["check", "digits", "--workers", "1"]) == 0
    out = capsys.readouterr().out
    assert "30 labeled" in out
    assert "10, with 140 to 140 pictures each" in out
    # 77,562 parameters of 4 bytes and 2 × 240 BatchNorm statistics of 8 bytes go to four clients, the parameters come
    # back; for the statistics all ten clients get the parameters once more.
    assert "4.4 MB down and 1.3 MB up a round" in out
    assert list(tmp_path.iterdir()) == []


def test_evaluate_agrees_with_the_run(run: Path, capsys: Output, pictures: Path) -> None:
    assert invoke(["evaluate", str(run), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert scores["accuracy"] == json.loads((run / "result.json").read_text())["accuracy"]
    assert scores["pictures"] == 12
    assert np.array(scores["confusion"]).sum() == 12
    assert invoke(["evaluate", str(run), str(pictures / "labeled")]) == 0
    assert "12 pictures" in capsys.readouterr().out


def test_predict_reads_files_and_folders_in_order(run: Path, capsys: Output, pictures: Path) -> None:
    assert invoke(["predict", str(run), str(pictures / "test/red/0.png"), str(pictures / "test/blue"), "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [Path(row["path"]).parent.name for row in rows] == ["red", "blue", "blue", "blue", "blue"]
    assert all(row["class"] in ("red", "green", "blue") and 1 / 3 <= float(row["confidence"]) <= 1 for row in rows)


def test_predict_agrees_with_evaluate(run: Path, capsys: Output, pictures: Path) -> None:
    invoke(["predict", str(run), str(pictures / "test"), "--json"])
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    right = sum(Path(answer["path"]).parent.name == answer["class"] for answer in answers)
    invoke(["evaluate", str(run), "--json"])
    assert 100 * right / 12 == pytest.approx(json.loads(capsys.readouterr().out)["accuracy"])


def test_a_model_file_is_enough_to_predict(run: Path, capsys: Output, pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "alone.safetensors").write_bytes((run / "model.safetensors").read_bytes())
    assert invoke(["predict", str(tmp_path / "alone.safetensors"), str(pictures / "test/red/0.png")]) == 0
    assert capsys.readouterr().out.count("\t") == 2


def test_an_unreadable_picture_is_named_and_the_others_are_answered(
    run: Path, capsys: Output, tmp_path: Path, pictures
) -> None:
    (tmp_path / "broken.png").write_bytes(b"not a picture")
    assert invoke(["predict", str(run), str(tmp_path / "broken.png"), str(pictures / "test/red/0.png")]) == 2
    captured = capsys.readouterr()
    assert "broken.png\t?\t" in captured.out
    assert len(captured.out.splitlines()) == 2
    assert "1 file could not be read" in captured.err


def mistakes(tmp: Path, run: Path, pictures: Path) -> list[tuple[list[str], str]]:
    (tmp / "bad.toml").write_text("rounds = = 3")
    return [
        (["run", "digts"], "there is no preset or file 'digts'; did you mean 'digits'?"),
        (["run", "no-such-file.toml"], "cannot read no-such-file.toml"),
        (["run", str(tmp / "bad.toml")], "is not valid TOML"),
        (["run", "digits", "--set", "method.treshold=1"], "unknown key method.treshold; did you mean 'threshold'?"),
        (["run", "digits", "--set", "method.threshold=1.5"], "method.threshold must lie between 0 and 1, not 1.5"),
        (["run", "digits", "--set", "data.clients=5000"], "data.clients = 5000 is more than the"),
        (["run", "digits", "--set", "data.labeled=31"], "data.labeled = 31 cannot be balanced over 10 classes"),
        (["run", "cifar10-250-iid"], "semifl data get cifar10"),
        (["run", "digits", "--device", "abacus"], "is not one of auto, cpu, cuda, mps"),
        (["run", "digits", "--device", "cuda"], "this machine has none that torch can use"),
        (["run"], "Missing argument"),
        (["tran"], "there is no verb 'tran'"),
        (["train", "digits"], "there is no verb 'train'; use 'semifl run'"),
        (["resume", str(tmp / "nowhere")], "is not a run directory"),
        (["resume", str(run), "--rounds", "1"], "cannot be resumed to 1"),
        (["show", "nothing"], "there is no preset or file 'nothing'"),
        (["data", "get", "cifar11"], "did you mean 'cifar10'?"),
        (["data", "get", "digits"], "digits needs no download"),
        (["evaluate", str(tmp)], "holds no model.safetensors"),
        (["evaluate", str(run), str(tmp / "none")], "there is no folder"),
        (["evaluate", str(run), str(pictures / "clients")], "class 'north', which the model does not know"),
        (["predict", str(run), str(tmp / "none.png")], "there is no picture or folder"),
        (["predict", str(tmp / "bad.toml"), str(tmp)], "is not a model written by semifl"),
    ]


def test_every_mistake_is_one_sentence_and_exit_2(
    tmp_path: Path, run: Path, pictures: Path, capsys: Output, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, sentence in mistakes(tmp_path, run, pictures):
        assert invoke(arguments) == 2, arguments
        captured = capsys.readouterr()
        assert sentence in captured.err, arguments
        assert captured.err.startswith("semifl: ")
        assert len(captured.err.splitlines()) == 1
    assert not (tmp_path / "runs").exists(), "a mistake must not leave a run directory behind"


def test_folder_mistakes_are_one_sentence(pictures: Path, capsys: Output, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = toy_table()
    table["data"] = {"name": "folder", "root": str(tmp_path / "own"), "size": 8}
    (tmp_path / "own.toml").write_text(toml.dumps(table))

    def complaint(*settings: str) -> str:
        options = [word for setting in settings for word in ("--set", setting)]
        assert invoke(["run", "own.toml", "--out", "out", "--workers", "1", *options]) == 2
        return capsys.readouterr().err

    assert "own" in complaint()
    (tmp_path / "own").symlink_to(pictures)
    assert "data.root" in complaint("data.root=")
    assert "the data come from 2 sites" in complaint("data.clients=3", "data.partition.name=site")
    assert "these unlabeled pictures have no known class" in complaint("data.partition.name=dirichlet")
    assert "leave it out" in complaint("data.labeled=3")


def test_a_truncated_picture_stops_or_is_skipped_and_counted(pictures: Path, capsys: Output, tmp_path: Path) -> None:
    import shutil

    shutil.copytree(pictures, tmp_path / "own")
    broken = tmp_path / "own/clients/north/red-0.png"
    broken.write_bytes(broken.read_bytes()[:-40])
    table = toy_table()
    table["data"] = {"name": "folder", "root": str(tmp_path / "own"), "size": 8}
    (tmp_path / "own.toml").write_text(toml.dumps(table))
    assert invoke(["check", str(tmp_path / "own.toml"), "--workers", "1"]) == 2
    message = capsys.readouterr().err
    assert "red-0.png" in message
    assert "data.unreadable" in message
    assert invoke(["check", str(tmp_path / "own.toml"), "--workers", "1", "--set", "data.unreadable=skip"]) == 0
    assert "skipped    1 unreadable files, the first: clients/north/red-0.png" in capsys.readouterr().out


@pytest.mark.skipif(
    os.geteuid() == 0 and not Path("/proc/self/mem").exists(), reason="needs a place that cannot be written"
)
def test_a_place_that_cannot_be_written_is_one_sentence(capsys: Output) -> None:
    assert invoke(["run", "digits", "--out", "/proc/semifl-cannot-write-here"]) == 2
    assert "cannot write the run directory /proc/semifl-cannot-write-here" in capsys.readouterr().err


def test_no_space_is_one_sentence(capsys: Output, tmp_path: Path, monkeypatch) -> None:
    import errno

    from semifl.running.checkpoint import Checkpoints

    def full(self, round, state, bound) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(self.folder))

    monkeypatch.setattr(Checkpoints, "save", full)
    table = {**toy_table(), "labels_only": False}
    (tmp_path / "toy.toml").write_text(toml.dumps(table))
    assert invoke(["run", str(tmp_path / "toy.toml"), "--out", str(tmp_path / "out"), "--workers", "1"]) == 2
    error = capsys.readouterr().err
    assert "No space left on device" in error
    assert "semifl resume" in error


def test_ctrl_c_says_how_to_go_on(capsys: Output, tmp_path: Path, monkeypatch) -> None:
    from semifl.running import loop as experiment

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(experiment, "finish", stop)
    (tmp_path / "toy.toml").write_text(toml.dumps(toy_table()))
    out = tmp_path / "out"
    assert invoke(["run", str(tmp_path / "toy.toml"), "--out", str(out), "--workers", "1"]) == 130
    assert f"semifl resume {out}" in capsys.readouterr().err
    monkeypatch.undo()
    assert invoke(["resume", str(out), "--workers", "1"]) == 0


def test_ctrl_c_before_there_is_a_run_is_one_word(capsys: Output, tmp_path: Path, monkeypatch) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("semifl.cli.options.load", stop)
    assert invoke(["run", "digits", "--out", str(tmp_path / "out")]) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert not (tmp_path / "out").exists()


def test_ctrl_c_while_verbs_are_imported_is_one_word(tmp_path: Path) -> None:
    """A module that all verbs import, here one that is itself interrupted."""
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")
    path = os.pathsep.join([str(tmp_path), str(Path(semifl.__file__).parent.parent)])
    done = subprocess.run(
        [sys.executable, "-m", "semifl", "--help"],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_runs_get_a_free_directory_of_their_own(tmp_path: Path, monkeypatch, capsys: Output) -> None:
    monkeypatch.chdir(tmp_path)
    Path("toy.toml").write_text(toml.dumps({**toy_table(), "rounds": 1, "labels_only": False}))
    for _ in range(2):
        assert invoke(["run", "toy.toml", "--workers", "1"]) == 0
    assert sorted(path.name for path in Path("runs").iterdir()) == ["toy-seed-0", "toy-seed-0-2"]

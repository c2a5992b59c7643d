"""A run goes on only from its own files: one that is missing, changed or of another run is named; nothing is lost."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from semifl.cli import invoke
from semifl.configuration.config import decode
from semifl.federation import memory as memory_module
from semifl.federation.memory import ClientMemory, Kept
from semifl.running.context import Silent
from semifl.running.loop import resume, start
from toys import KEPT, toy_table


class Interrupted(Exception):
    pass


class InterruptAfter(Silent):
    def __init__(self, number: int) -> None:
        self.number = number

    def round(self, record, best) -> None:
        if record["round"] == self.number:
            raise Interrupted


def configuration(seed: int) -> dict:
    """Half of four clients in each of five rounds; a part of the labels is held out, so that a model is kept."""
    toy = {**toy_table(**KEPT), "rounds": 5, "seed": seed}
    toy["data"] = {**toy["data"], "labeled": 12, "validation": 0.5}
    return toy


def halted_run(directory: Path, seed: int, after: int = 3) -> Path:
    with pytest.raises(Interrupted):
        start(decode(configuration(seed)), directory, observer=InterruptAfter(after))
    return directory


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run after three of its five rounds, another one of another seed, and the first one undisturbed."""
    folder = tmp_path_factory.mktemp("runs")
    start(decode(configuration(0)), folder / "whole")
    return {
        "this": halted_run(folder / "this", 0),
        "other": halted_run(folder / "other", 1),
        "whole": folder / "whole",
    }


@pytest.fixture
def run(originals: dict[str, Path], tmp_path: Path) -> Path:
    return Path(shutil.copytree(originals["this"], tmp_path / "run"))


def outcome(directory: Path) -> tuple[list[str], bytes]:
    lines = (directory / "rounds.jsonl").read_text().splitlines()
    return [json.loads(line)["digest"] for line in lines], (directory / "model.safetensors").read_bytes()


def memories(directory: Path) -> dict[int, Path]:
    """The newest file of each client that has one."""
    newest: dict[int, Path] = {}
    for path in sorted(directory.glob("checkpoint/memory/*/*.safetensors"), key=lambda path: int(path.stem)):
        newest[int(path.parent.name)] = path
    return newest


def files(directory: Path) -> dict[Path, bytes]:
    kept = (path for path in directory.rglob("*") if path.is_file() and path.name not in ("events.jsonl", ".lock"))
    return {path.relative_to(directory): path.read_bytes() for path in kept}


def refusal(directory: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The one sentence that the command line says; nothing in the directory has changed."""
    before = files(directory)
    assert invoke(["resume", str(directory), "--workers", "1"]) == 2
    (sentence,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("semifl:")]
    assert files(directory) == before
    return sentence


def test_untouched_it_goes_on_with_the_same_bits(run: Path, originals: dict[str, Path]) -> None:
    resume(run)
    assert outcome(run) == outcome(originals["whole"])


def test_a_deleted_memory_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    client, path = next(iter(memories(run).items()))
    path.unlink()
    assert f"the memory of client {client} in {path} is missing" in refusal(run, capsys)


def test_memories_of_two_clients_that_changed_places_are_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = sorted(memories(run).values())[:2]
    contents = first.read_bytes(), second.read_bytes()
    second.write_bytes(contents[0])
    first.write_bytes(contents[1])
    assert f"in {first} is not the one that it kept in this run" in refusal(run, capsys)


def test_a_memory_of_another_run_is_named(
    run: Path, originals: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = next(iter(memories(run).values()))
    shutil.copy(next(iter(memories(originals["other"]).values())), path)
    assert f"in {path} is not the one that it kept in this run" in refusal(run, capsys)


def test_a_memory_of_another_round_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    client, path = next((c, p) for c, p in memories(run).items() if len(list(p.parent.iterdir())) > 1)
    older = min(path.parent.iterdir(), key=lambda each: int(each.stem))
    shutil.copy(older, path)
    assert f"the memory of client {client} in {path} is not the one" in refusal(run, capsys)


def test_a_memory_that_nobody_kept_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run / "checkpoint/memory/17/2.safetensors"
    path.parent.mkdir()
    shutil.copy(next(iter(memories(run).values())), path)
    assert f"the memory of client 17 in {path} is not of this run" in refusal(run, capsys)


def test_a_folder_in_place_of_a_memory_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = next(iter(memories(run).values()))
    path.unlink()
    path.mkdir()
    assert f"in {path} is damaged: it is a folder and not a file" in refusal(run, capsys)


def test_a_folder_where_an_interrupted_round_left_its_memory_is_named(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run / "checkpoint/memory/0/4.safetensors"
    path.mkdir(parents=True)
    assert invoke(["resume", str(run), "--workers", "1"]) == 2
    assert f"in {path} is damaged: it is a folder and not a file" in capsys.readouterr().err


def test_leftovers_of_an_interrupted_round_are_no_fault(run: Path, originals: dict[str, Path]) -> None:
    path = run / "checkpoint/memory/0/4.safetensors"
    path.parent.mkdir(exist_ok=True)
    shutil.copy(next(iter(memories(originals["other"]).values())), path)
    resume(run)
    assert outcome(run) == outcome(originals["whole"])


@pytest.mark.parametrize("folder", ["checkpoint", "checkpoint/labels_only"])
def test_a_checkpoint_of_another_run_is_named(
    run: Path, originals: dict[str, Path], capsys: pytest.CaptureFixture[str], folder: str
) -> None:
    path = max((run / folder).glob("*.safetensors"))
    shutil.copy(originals["other"] / path.relative_to(run), path)
    assert refusal(run, capsys) == (
        f"semifl: {path} is not of the run in {run / 'config.toml'}: seed was 1 and is now 0"
    )


def test_a_checkpoint_of_another_round_is_passed_over(run: Path, originals: dict[str, Path]) -> None:
    shutil.copy(run / "checkpoint/000002.safetensors", run / "checkpoint/000003.safetensors")
    resume(run)
    assert outcome(run) == outcome(originals["whole"])


def changed(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def test_a_changed_configuration_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed(run / "config.toml", "threshold = 0.3", "threshold = 0.4")
    sentence = refusal(run, capsys)
    assert sentence.endswith(f"in {run / 'config.toml'}: method.threshold was 0.3 and is now 0.4")


def test_what_decides_no_bits_may_change(run: Path, originals: dict[str, Path]) -> None:
    changed(run / "config.toml", 'collapse = "warn"', 'collapse = "stop"')
    changed(run / "config.toml", "max_failures = 0", "max_failures = 3")
    changed(run / "config.toml", "minutes = 0.0", "minutes = 600.0")
    resume(run)
    assert outcome(run) == outcome(originals["whole"])


def test_a_changed_line_of_the_records_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = (run / "rounds.jsonl").read_text().splitlines()
    second = {**json.loads(lines[1]), "accuracy": 99.5}
    (run / "rounds.jsonl").write_text("\n".join([lines[0], json.dumps(second), *lines[2:]]) + "\n")
    assert f"{run / 'rounds.jsonl'} is not as this run left it" in refusal(run, capsys)


@pytest.mark.parametrize("damage", ["swapped", "missing"])
def test_the_best_model_so_far_is_part_of_the_run(
    run: Path, originals: dict[str, Path], capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    if damage == "swapped":
        shutil.copy(originals["whole"] / "model.safetensors", run / "model.safetensors")
        with safe_open(run / "model.safetensors", "pt") as file:
            about = json.loads(file.metadata()["semifl"])
            tensors = {name: file.get_tensor(name) + 1 for name in file.keys()}  # noqa: SIM118  (not a dict)
        save_file(tensors, run / "model.safetensors", {"semifl": json.dumps({**about, "round": 1})})
        assert f"{run / 'model.safetensors'} is not the model that this run has kept" in refusal(run, capsys)
    else:
        (run / "model.safetensors").unlink()
        assert f"{run / 'model.safetensors'}, the best model so far, cannot be read" in refusal(run, capsys)


def test_a_run_of_the_former_format_is_refused_with_a_sentence(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environment = json.loads((run / "environment.json").read_text())
    (run / "environment.json").write_text(json.dumps({**environment, "format": 2}))
    assert f"{run} has format 2, this version reads 4: use the version that wrote it" in refusal(run, capsys)


def test_a_round_looks_at_the_files_of_its_cohort_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = ClientMemory(tmp_path)
    for client in range(50):
        memory.write(client, 1, {"momentum": torch.full((2,), float(client))})
    kept = memory.note(Kept.nothing(), range(50), 1)
    memory.write(7, 2, {"momentum": torch.zeros(2)})
    looked: list[Path] = []
    real = memory_module.read_metadata
    monkeypatch.setattr(memory_module, "read_metadata", lambda path: looked.append(path) or real(path))
    after = memory.note(kept, [3, 7], 2)  # client 3 kept nothing this time
    assert looked == [tmp_path / "7/2.safetensors"]
    assert after.rounds.tolist() == [2 if client == 7 else 1 for client in range(50)]
    assert [c for c in range(50) if after.digests[c] != kept.digests[c]] == [7]
    memory.verify(after, 2)
    assert kept.rounds.tolist() == [1] * 50  # the earlier checkpoint's table is its own


@pytest.mark.parametrize("name", ["x", "²", "-1", "007", "1e3"])
def test_files_of_other_names_are_left_alone(tmp_path: Path, name: str) -> None:
    for odd in (tmp_path / name / "1.safetensors", tmp_path / "0" / f"{name}.safetensors"):
        odd.parent.mkdir(exist_ok=True)
        odd.write_text("not ours")
    memory = ClientMemory(tmp_path)
    memory.forget_after(0)
    memory.verify(Kept.nothing(), 9)
    assert memory.read(0, before=9) is None
    assert (tmp_path / name / "1.safetensors").exists()


@pytest.mark.parametrize("act", [resume, lambda path: resume(path, rounds=6)])
def test_checkpoints_of_odd_names_are_left_alone(run: Path, act: Callable[[Path], object]) -> None:
    for name in ("1x.safetensors", "7.safetensors", "0²0.safetensors"):
        (run / "checkpoint" / name).write_text("not ours")
    act(run)
    assert (run / "result.json").exists()

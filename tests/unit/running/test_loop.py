"""The loop as a whole: bits, resume, early stops, records."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from semifl.configuration.build import what_was_loaded
from semifl.configuration.config import decode
from semifl.errors import UserError
from semifl.running import loop as experiment
from semifl.running.checkpoint import Checkpoints
from semifl.running.context import Silent
from semifl.running.loop import resume, start
from toys import KEPT, REFERENCE, toy_table


def rounds(directory: Path) -> list[dict]:
    """What the promise covers: everything but the seconds."""
    records = [json.loads(line) for line in (directory / "rounds.jsonl").read_text().splitlines()]
    return [{key: value for key, value in record.items() if key != "seconds"} for record in records]


class Interrupted(Exception):
    pass


class InterruptAfter(Silent):
    def __init__(self, round_number: int) -> None:
        self.round_number = round_number

    def round(self, record, best) -> None:
        if record["round"] == self.round_number:
            raise Interrupted


@pytest.mark.parametrize("method", [KEPT, REFERENCE], ids=["paper", "reference"])
def test_same_seed_same_bits_with_one_two_or_four_workers(tmp_path: Path, method: dict) -> None:
    config = decode(toy_table(**method))
    for name, workers in (("one", 1), ("again", 1), ("two", 2), ("four", 4)):
        start(config, tmp_path / name, workers=workers)
    model = (tmp_path / "one" / "model.safetensors").read_bytes()
    for other in ("again", "two", "four"):
        assert (tmp_path / other / "model.safetensors").read_bytes() == model
        assert rounds(tmp_path / other) == rounds(tmp_path / "one")


def test_another_seed_gives_another_model(tmp_path: Path) -> None:
    for seed in (0, 1):
        start(decode({**toy_table(), "seed": seed}), tmp_path / str(seed))
    assert rounds(tmp_path / "0")[-1]["digest"] != rounds(tmp_path / "1")[-1]["digest"]


@pytest.mark.parametrize("method", [KEPT, REFERENCE], ids=["paper", "reference"])
@pytest.mark.parametrize("after", [1, 2])
def test_resuming_gives_the_bits_of_the_uninterrupted_run(tmp_path: Path, method: dict, after: int) -> None:
    config = decode(toy_table(**method))
    whole = start(config, tmp_path / "whole")
    with pytest.raises(Interrupted):
        start(config, tmp_path / "cut", observer=InterruptAfter(after))
    result = resume(tmp_path / "cut")
    assert rounds(tmp_path / "cut") == rounds(tmp_path / "whole")
    assert (tmp_path / "cut/model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()
    timing = {"seconds", "seconds_per_round"}
    assert {k: v for k, v in result.items() if k not in timing} == {k: v for k, v in whole.items() if k not in timing}


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before(tmp_path: Path) -> None:
    config = decode(toy_table(**KEPT))
    start(config, tmp_path / "whole")
    with pytest.raises(Interrupted):
        start(config, tmp_path / "cut", observer=InterruptAfter(3))
    newest = tmp_path / "cut/checkpoint/000003.safetensors"
    content = bytearray(newest.read_bytes())
    content[-3] ^= 1
    newest.write_bytes(content)
    warnings = []

    class Listening(Silent):
        def warn(self, message: str) -> None:
            warnings.append(message)

    resume(tmp_path / "cut", observer=Listening())
    assert len(warnings) == 1
    assert "000003.safetensors is damaged" in warnings[0]
    assert rounds(tmp_path / "cut") == rounds(tmp_path / "whole")


def test_a_finished_run_can_have_more_rounds(tmp_path: Path) -> None:
    start(decode(toy_table()), tmp_path / "run")
    before = rounds(tmp_path / "run")
    result = resume(tmp_path / "run", rounds=5)
    after = rounds(tmp_path / "run")
    assert after[:3] == before
    assert [record["round"] for record in after] == [1, 2, 3, 4, 5]
    assert result["rounds"] == 5
    # Cosine over five rounds: lr at round 4 is 0.03 · (1 + cos(3π/5)) / 2.
    assert after[3]["lr"] == pytest.approx(0.03 * 0.5 * (1 + -0.30901699437494745))
    with pytest.raises(UserError, match="has 5 rounds already"):
        resume(tmp_path / "run", rounds=2)


def test_resuming_a_finished_run_returns_its_result_and_touches_nothing(tmp_path: Path) -> None:
    result = start(decode(toy_table()), tmp_path / "run")
    shutil.rmtree(tmp_path / "run/checkpoint")
    assert resume(tmp_path / "run") == result
    assert not (tmp_path / "run/checkpoint").exists()


def test_labels_only_is_the_method_when_everybody_abstains(tmp_path: Path) -> None:
    # With τ = 1 nobody ever trains, so the run itself is T + 1 fine-tunes of the same model.
    result = start(decode(toy_table(threshold=1.0)), tmp_path / "run")
    assert all(record["label_ratio"] == 0 for record in rounds(tmp_path / "run"))
    assert all(record["abstained"] == record["cohort"] for record in rounds(tmp_path / "run"))
    assert result["labels_only_accuracy"] == result["accuracy"]


def test_records_have_the_names_of_the_design(tmp_path: Path) -> None:
    result = start(decode(toy_table()), tmp_path / "run")
    assert set(
        "method dataset seed rounds accuracy best_accuracy best_round balanced_accuracy labels_only_accuracy "
        "seconds seconds_per_round bytes_up bytes_down".split()
    ) <= set(result)
    record = json.loads((tmp_path / "run/rounds.jsonl").read_text().splitlines()[0])
    assert set(
        "round lr accuracy loss cohort abstained failed late rejected label_ratio mean_confidence pseudo_accuracy "
        "confident_accuracy agreement class_histogram update_norm alerts digest bytes_up bytes_down seconds".split()
    ) <= set(record)
    names = {path.name for path in (tmp_path / "run").iterdir()}
    expected = {"config.toml", "environment.json", "rounds.jsonl", "result.json", "model.safetensors", "checkpoint"}
    assert expected <= names


def test_bytes_are_those_of_the_model(tmp_path: Path) -> None:
    start(decode(toy_table(threshold=0.0)), tmp_path / "run")
    record = rounds(tmp_path / "run")[0]
    # conv 3·6·9 + 6, BatchNorm 2·6, linear 6·3 + 3 parameters of 4 bytes; statistics 2·6 of 8 bytes go down only.
    parameters = 3 * 6 * 9 + 6 + 12 + 21
    assert len(record["cohort"]) == 2
    assert record["bytes_up"] == 2 * 4 * parameters
    assert record["bytes_down"] == 2 * (4 * parameters + 8 * 12)


def test_the_model_chosen_on_validation_is_the_one_that_is_kept(tmp_path: Path) -> None:
    table = toy_table()
    table["data"] |= {"labeled": 12, "validation": 0.5}
    result = start(decode(table), tmp_path / "run")
    records = rounds(tmp_path / "run")
    assert len({record["validation_accuracy"] for record in records}) == 1  # on six pictures all rounds are alike
    with safe_open(tmp_path / "run/model.safetensors", "pt") as file:
        kept = json.loads(file.metadata()["semifl"])
    assert (kept["round"], result["best_round"]) == (len(records) + 1, "final")  # and the latest has learned longest
    assert result["best_accuracy"] == result["accuracy"]
    assert result["best_test_accuracy"] == max([*(record["accuracy"] for record in records), result["accuracy"]])
    assert (tmp_path / "run/model.safetensors").is_file()


def test_patience_stops_a_run_that_no_longer_improves(tmp_path: Path) -> None:
    table = toy_table()
    table |= {"rounds": 12, "stop": {"patience": 2}}
    table["data"] |= {"labeled": 12, "validation": 0.5}
    result = start(decode(table), tmp_path / "run")
    validation = [record["validation_accuracy"] for record in rounds(tmp_path / "run")]
    assert result["rounds"] == len(validation) < 12
    assert len(validation) - 1 - validation.index(max(validation)) == 2


def test_minutes_stop_a_run(tmp_path: Path) -> None:
    table = {**toy_table(), "stop": {"minutes": 1e-6}}
    result = start(decode(table), tmp_path / "run")
    assert result["rounds"] == 1
    assert "stopped early" in (tmp_path / "run/events.jsonl").read_text()


def test_a_directory_is_never_overwritten_nor_used_twice_at_once(tmp_path: Path) -> None:
    config = decode(toy_table())
    start(config, tmp_path / "run")
    with pytest.raises(UserError, match="already holds a run"):
        start(config, tmp_path / "run")
    directory = experiment.RunDirectory(tmp_path / "run")
    with directory.locked(), pytest.raises(UserError, match="in use by another run"):
        resume(tmp_path / "run")


def test_warm_start_begins_with_the_weights_of_the_file(tmp_path: Path) -> None:
    start(decode(toy_table()), tmp_path / "first")
    trained = load_file(tmp_path / "first/model.safetensors")
    table = toy_table()
    table["model"]["weights"] = str(tmp_path / "first/model.safetensors")
    world = experiment.build_world(decode(table))
    module = world.model_factory()()
    for name, parameter in module.named_parameters():
        assert parameter.equal(trained[name]), name


def test_warm_start_is_strict_unless_partial(tmp_path: Path) -> None:
    start(decode(toy_table()), tmp_path / "first")
    table = toy_table()
    table["model"] |= {"hidden": 5, "weights": str(tmp_path / "first/model.safetensors")}
    with pytest.raises(UserError, match=r"does not fit the model at '0\.bias'"):
        start(decode(table), tmp_path / "strict")
    table["model"]["partial"] = True
    module = experiment.build_world(decode(table)).model_factory()()
    # Of 0, 1 and 6 only the last bias has a shape that does not depend on `hidden`.
    assert module[6].bias.equal(load_file(tmp_path / "first/model.safetensors")["6.bias"])


def test_a_partial_warm_start_says_what_it_loaded_and_what_not(tmp_path: Path) -> None:
    start(decode(toy_table()), tmp_path / "first")
    table = toy_table()
    table["model"] |= {"hidden": 5, "weights": str(tmp_path / "first/model.safetensors"), "partial": True}
    said = what_was_loaded(experiment.build_world(decode(table)))
    # Six tensors without statistics: a convolution's two, a norm's two, a linear layer's two; only its bias fits.
    assert ": 1 tensors were loaded, not these: 0.bias ([6] in the file, [5] in the model), 0.weight (" in said
    assert "6.weight ([3, 6] in the file, [3, 5] in the model)" in said
    heard: list[str] = []

    class Listening(Silent):
        def warn(self, message: str) -> None:
            heard.append(message)

    start(decode({**table, "rounds": 1}), tmp_path / "run", observer=Listening())
    assert said in heard
    table["model"] = {"name": "toys:toy_model", "weights": table["model"]["weights"]}
    assert what_was_loaded(experiment.build_world(decode(table))).endswith("all 6 tensors were loaded")


def test_a_pickle_is_refused_with_a_command_that_converts_it(tmp_path: Path) -> None:
    start(decode({**toy_table(), "rounds": 1}), tmp_path / "first")
    weights = load_file(tmp_path / "first/model.safetensors")
    torch.save({"state_dict": weights}, tmp_path / "old.pth")
    table = toy_table()
    table["model"]["weights"] = str(tmp_path / "old.pth")
    with pytest.raises(UserError, match="is a pickle, which can run code") as error:
        start(decode(table), tmp_path / "run")
    command = str(error.value).split('python -c "')[1].removesuffix('"')
    subprocess.run([sys.executable, "-c", command], cwd=tmp_path, check=True)
    assert load_file(tmp_path / "old.safetensors").keys() == weights.keys()
    table["model"]["weights"] = str(tmp_path / "old.safetensors")
    assert what_was_loaded(experiment.build_world(decode(table))).endswith("all 6 tensors were loaded")


def test_checkpoints_keep_the_last_two(tmp_path: Path) -> None:
    start(decode({**toy_table(), "rounds": 4}), tmp_path / "run")
    assert Checkpoints(tmp_path / "run/checkpoint").rounds() == [3, 4]

"""The precision of a run: settled before anything is written, kept by whoever goes on, part of the promise of bits."""

import tomllib
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from semifl.configuration.config import decode
from semifl.errors import UserError
from semifl.records.directory import RunDirectory
from semifl.running.context import Silent
from semifl.running.loop import resume, start, start_or_resume
from toys import toy_table


class Listening(Silent):
    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warn(self, message: str) -> None:
        self.warnings.append(message)


def table(precision: str, **more: object) -> dict:
    return {**toy_table(), "rounds": 2, "labels_only": False, "precision": precision, **more}


def written(directory: Path) -> str:
    return tomllib.loads((directory / "config.toml").read_text())["precision"]


def digests(directory: Path) -> list[str]:
    return [record["digest"] for record in RunDirectory(directory).rounds()]


@pytest.mark.parametrize(("fast", "expected"), [(True, "bf16"), (False, "fp32")])
def test_auto_is_settled_in_the_resolved_configuration(tmp_path: Path, monkeypatch, fast: bool, expected: str) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": fast}, raising=False)
    observer = Listening()
    start(decode(table("auto")), tmp_path / "auto", observer=observer)
    assert written(tmp_path / "auto") == expected
    assert [("stays at fp32" in warning) for warning in observer.warnings] == ([] if fast else [True])
    start(decode(table(expected)), tmp_path / "said")
    assert digests(tmp_path / "auto") == digests(tmp_path / "said")


def test_bf16_gives_other_bits_but_the_same_ones_with_any_workers_and_after_an_interruption(tmp_path: Path) -> None:
    start(decode(table("fp32")), tmp_path / "fp32")
    start(decode(table("bf16")), tmp_path / "one")
    start(decode(table("bf16")), tmp_path / "two", workers=2)
    start(decode(table("bf16", stop={"minutes": 1e-9})), tmp_path / "cut")
    cut = (tmp_path / "cut/config.toml").read_text()
    (tmp_path / "cut/config.toml").write_text(cut.replace("minutes = 1e-09", "minutes = 0.0"))
    (tmp_path / "cut/result.json").unlink()
    resume(tmp_path / "cut")
    assert digests(tmp_path / "one") == digests(tmp_path / "two") == digests(tmp_path / "cut")
    assert digests(tmp_path / "one") != digests(tmp_path / "fp32")


def test_what_a_run_keeps_is_fp32(tmp_path: Path) -> None:
    start(decode(table("bf16")), tmp_path / "run")
    model = load_file(tmp_path / "run/model.safetensors")
    assert {tensor.dtype for tensor in model.values() if tensor.is_floating_point()} == {torch.float32}
    newest = max((tmp_path / "run/checkpoint").glob("*.safetensors"))
    kept = load_file(newest)
    assert all(tensor.dtype in (torch.float32, torch.float64) for tensor in kept.values() if tensor.is_floating_point())


def test_a_run_does_not_go_on_in_another_precision(tmp_path: Path) -> None:
    start_or_resume(decode(table("fp32")), tmp_path / "run")
    with pytest.raises(UserError, match="precision was 'fp32' and is now 'bf16'"):
        start_or_resume(decode(table("bf16")), tmp_path / "run")

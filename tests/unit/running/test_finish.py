"""The end of a run: whatever is interrupted there, a resume completes."""

from pathlib import Path

import pytest

from semifl.configuration.config import decode
from semifl.running import finish
from semifl.running.loop import resume, start
from toys import toy_table


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed") / "run"
    start(decode(toy_table()), out)
    return out


def files(run: Path) -> set[str]:
    found = {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
    return found - {"events.jsonl"}  # which says of the other that it was resumed


@pytest.mark.parametrize("step", ["keep_model", "write_model_card", "write_gallery", "remove_folder"])
def test_a_run_interrupted_while_it_finishes_is_completed(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(finish, step, interrupted)
        with pytest.raises(KeyboardInterrupt):
            start(decode(toy_table()), tmp_path / "run")
    assert not (tmp_path / "run/result.json").exists()  # the mark of a finished run
    resume(tmp_path / "run")
    assert files(tmp_path / "run") == files(whole) > {"result.json", "model.md", "gallery/gallery.json"}
    assert (tmp_path / "run/model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()

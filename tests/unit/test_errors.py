"""Where in a person's own code an error was raised."""

import sys
import traceback
from pathlib import Path

import pytest
import torch

from semifl.errors import RunStopped, UserError, error_sentence, has_traceback, own_code_location
from semifl.learning.weights import average

BUGGY = """import torch


def loss(outputs):
    return torch.bmm(outputs, outputs)


def through_semifl(average):
    return average([(None, 1.0)])
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    (tmp_path / "buggy_loss.py").write_text(BUGGY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "buggy_loss", raising=False)
    import buggy_loss  # type: ignore[import-not-found]

    return buggy_loss


def raised(function, *arguments) -> BaseException:
    with pytest.raises(Exception) as error:  # noqa: PT011
        function(*arguments)
    return error.value


def test_the_line_is_that_of_a_persons_own_file_not_of_torch_or_semifl(mine, tmp_path: Path, monkeypatch) -> None:
    assert error_sentence(raised(mine.loss, torch.zeros(2, 2))) == (
        "RuntimeError: batch1 must be a 3D tensor (buggy_loss.py:5)"
    )
    through = raised(mine.through_semifl, average)
    assert "semifl" in traceback.extract_tb(through.__traceback__)[-1].filename  # the last frame is not theirs
    assert own_code_location(through) == "buggy_loss.py:9"
    monkeypatch.chdir("/")
    assert own_code_location(through) == f"{tmp_path / 'buggy_loss.py'}:9"[1:]  # / is the current folder


def test_a_file_that_is_no_python_has_a_line_too(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "half.py").write_text("x = 1\ndef f(:\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert error_sentence(raised(__import__, "half")) == "SyntaxError: invalid syntax (half.py:2)"


def test_what_one_sentence_tells_needs_no_traceback() -> None:
    assert not has_traceback(UserError("method.lr = 0"))
    assert error_sentence(UserError("method.lr\n= 0")) == "method.lr = 0"
    stopped = RunStopped("client 1 failed")
    assert not has_traceback(stopped)
    stopped.__cause__ = KeyError("x")
    assert has_traceback(stopped)

"""Endless nesting in a file or in a setting is one sentence, whichever verb reads it."""

from pathlib import Path

import pytest

from semifl.cli import invoke
from semifl.configuration.config import decode
from semifl.running.loop import start
from toys import toy_table

NESTS = {
    "dotted keys": lambda depth: "a." * depth + "b = 1",
    "a section": lambda depth: "[" + "a." * depth + "b]\nc = 1",
    "inline tables": lambda depth: "a = " + "{b = " * depth + "1" + "}" * depth,
    "arrays": lambda depth: "a = " + "[" * depth + "]" * depth,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("deep") / "run"
    start(decode({**toy_table(), "labels_only": False}), directory)
    return directory


@pytest.mark.parametrize("depth", [700, 5000])
@pytest.mark.parametrize("kind", NESTS)
@pytest.mark.parametrize("verb", ["check", "run", "show", "sweep", "table"])
def test_a_deep_file(verb: str, kind: str, depth: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "deep.toml"
    path.write_text(NESTS[kind](depth))
    assert invoke([verb, str(path)]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence == f"semifl: {path} is not valid TOML: it is nested more than 100 levels deep"


@pytest.mark.parametrize("depth", [700, 5000])
@pytest.mark.parametrize("kind", NESTS)
@pytest.mark.parametrize("verb", ["resume", "show", "report", "compare"])
def test_a_deep_configuration_of_a_run(
    verb: str, kind: str, depth: int, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sound = (run / "config.toml").read_text()
    try:
        (run / "config.toml").write_text(f"{NESTS[kind](depth)}\n")
        code = invoke([verb, str(run)])
        said = capsys.readouterr().err.splitlines()
    finally:
        (run / "config.toml").write_text(sound)
    if verb in ("report", "compare"):  # they show what there is
        assert (code, said) == (0, [])
    else:
        assert (code, said) == (
            2, [f"semifl: {run / 'config.toml'} is not valid TOML: it is nested more than 100 levels deep"]
        )  # fmt: skip


@pytest.mark.parametrize("depth", [700, 5000])
@pytest.mark.parametrize("setting", [
    lambda depth: "a." * depth + "b=1",
    lambda depth: "model.hidden=" + "[" * depth + "]" * depth,
    lambda depth: "model=" + "{b=" * depth + "1" + "}" * depth,
    lambda depth: "model={" + "a." * depth + "b=1}",
], ids=["key", "array", "table", "key in a table"])  # fmt: skip
@pytest.mark.parametrize("verb", ["check", "run", "show"])
def test_a_deep_setting(verb: str, setting, depth: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke([verb, "digits", "--set", setting(depth)]) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert sentence.endswith("nested more than 100 levels deep")
    assert len(sentence) < 200
